//go:build tools

// Names the programs that are built here, so that go.sum holds what they need.
package tools

import (
	_ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
