// How long Caddy takes to prepare one request for its handlers: the replacer, the context's values, the copy of the
// request. Prints one JSON object: name, ns, bytes, allocations.
package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

var sink *http.Request

func main() {
	testing.Init()
	server := new(caddyhttp.Server)
	writer := httptest.NewRecorder()
	request := httptest.NewRequest("GET", "http://bench.example/articles/2026/11/a-page.html?page=2", nil)
	result := testing.Benchmark(func(b *testing.B) {
		for i := 0; i < b.N; i++ {
			sink = caddyhttp.PrepareRequest(request, caddy.NewReplacer(), writer, server)
		}
	})
	err := json.NewEncoder(os.Stdout).Encode(map[string]any{
		"name":        "Caddy PrepareRequest",
		"ns":          float64(result.T.Nanoseconds()) / float64(result.N),
		"bytes":       float64(result.AllocedBytesPerOp()),
		"allocations": float64(result.AllocsPerOp()),
	})
	if err != nil {
		panic(err)
	}
}
