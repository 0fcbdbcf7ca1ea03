package main

import (
	"encoding/json"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
)

// memory is what a server has allocated since it began.
type memory struct {
	Bytes       uint64 `json:"bytes"`
	Allocations uint64 `json:"allocations"`
	Collections uint32 `json:"collections"`
}

// telling answers /memory; /by, with `exact`, with bytes by who allocated them; and /collect when what is not needed was collected.
func telling() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/memory", func(w http.ResponseWriter, _ *http.Request) {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		json.NewEncoder(w).Encode(memory{stats.TotalAlloc, stats.Mallocs, stats.NumGC})
	})
	mux.HandleFunc("/by", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(by())
	})
	mux.HandleFunc("/collect", func(http.ResponseWriter, *http.Request) { debug.FreeOSMemory() })
	return mux
}

// parts are the places where a call's bytes are allocated on the server, as (name, what a function on the stack is called). The
// first that is found counts: where both would be, the inner one stands first.
var parts = [...][2]string{
	{"response: marshal", "httpgrpc.(*HTTPResponse).Marshal"},
	{"response: codec", "encoding/proto.(*codecV2).Marshal"},
	{"response: recorder", "httptest.(*ResponseRecorder)"},
	{"response: recorder", "(*pooledAnswer)"},
	{"request: unmarshal", "httpgrpc.(*HTTPRequest).Unmarshal"},
	{"request: codec", "encoding/proto.(*codecV2).Unmarshal"},
	{"request: transport", "transport.(*http2Server).HandleStreams"},
	{"request: transport", "transport.(*framer)"},
	{"request: transport", "grpc.(*parser).recvMsg"},
	{"response: transport", "transport.(*loopyWriter)"},
	{"response: transport", "transport.(*http2Server).write"},
	{"request: rest", "httpgrpc.ToHTTPRequest"},
	{"response: rest", "httpgrpc.FromHeader"},
}

// by sums bytes by part.
func by() map[string]int64 {
	// A profile is complete only when collections have gone by.
	runtime.GC()
	runtime.GC()
	count, _ := runtime.MemProfile(nil, true)
	var records []runtime.MemProfileRecord
	for ok := false; !ok; {
		records = make([]runtime.MemProfileRecord, count+100)
		count, ok = runtime.MemProfile(records, true)
	}
	sums := map[string]int64{}
	for i := range records[:count] {
		sums[part(records[i].Stack())] += records[i].AllocBytes
	}
	return sums
}

func part(stack []uintptr) string {
	var names []string
	for frames := runtime.CallersFrames(stack); ; {
		frame, more := frames.Next()
		names = append(names, frame.Function)
		if !more {
			break
		}
	}
	whole := strings.Join(names, "\n")
	for _, part := range parts {
		if strings.Contains(whole, part[1]) {
			return part[0]
		}
	}
	if strings.Contains(whole, "telling") {
		return "told"
	}
	return "rest"
}
