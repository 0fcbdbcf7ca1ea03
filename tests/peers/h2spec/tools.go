//go:build tools

// Names the program that is built here, so that go.sum holds what it needs.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
