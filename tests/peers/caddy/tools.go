//go:build tools

// Names the program that is built here, so that go.sum lists the modules it needs.
package tools

import _ "github.com/caddyserver/caddy/v2/cmd/caddy"
