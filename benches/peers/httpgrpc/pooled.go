package main

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"github.com/grafana/dskit/httpgrpc"
	"google.golang.org/grpc/stats"
)

// The idea of weaveworks/common's pull request 260: an answer's body is written to a buffer of a pool, and gRPC's statistics say
// when the message has been given to the transport, encoded; then the buffer goes back.

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// place is where a call's handler leaves its buffer for goneHome.
type place struct{ buffer *bytes.Buffer }

type placeKey struct{}

type goneHome struct{}

func (goneHome) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, placeKey{}, new(place))
}

func (goneHome) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutPayload); !ok {
		return
	}
	if place, ok := ctx.Value(placeKey{}).(*place); ok && place.buffer != nil {
		place.buffer.Reset()
		buffers.Put(place.buffer)
		place.buffer = nil
	}
}

func (goneHome) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (goneHome) HandleConn(context.Context, stats.ConnStats) {}

type pooledServer struct{ site http.Handler }

func (s pooledServer) Handle(ctx context.Context, r *httpgrpc.HTTPRequest) (*httpgrpc.HTTPResponse, error) {
	request, err := httpgrpc.ToHTTPRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	buffer := buffers.Get().(*bytes.Buffer)
	answer := pooledAnswer{fields: http.Header{}, body: buffer}
	s.site.ServeHTTP(&answer, request)
	if answer.code == 0 {
		answer.code = http.StatusOK
	}
	response := &httpgrpc.HTTPResponse{Code: int32(answer.code), Headers: httpgrpc.FromHeader(answer.fields), Body: buffer.Bytes()}
	if answer.code/100 == 5 {
		// Encoded elsewhere and told by no event: this buffer is the collector's.
		return nil, httpgrpc.ErrorFromHTTPResponse(response)
	}
	if place, ok := ctx.Value(placeKey{}).(*place); ok {
		place.buffer = buffer
	}
	return response, nil
}

type pooledAnswer struct {
	fields http.Header
	code   int
	body   *bytes.Buffer
}

func (a *pooledAnswer) Header() http.Header { return a.fields }

func (a *pooledAnswer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

func (a *pooledAnswer) Write(content []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(content)
}
