package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/grafana/dskit/httpgrpc"
	"github.com/grafana/dskit/httpgrpc/server"
	"google.golang.org/grpc"
)

func serve(port, told int, pooled bool) {
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:"+strconv.Itoa(told), telling())) }()
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(messageBytesMax), grpc.MaxSendMsgSize(messageBytesMax)}
	var handler httpgrpc.HTTPServer = server.NewServer(site())
	if pooled {
		options = append(options, grpc.StatsHandler(goneHome{}))
		handler = pooledServer{site()}
	}
	s := grpc.NewServer(options...)
	httpgrpc.RegisterHTTPServer(s, handler)
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	check(err)
	check(s.Serve(listener))
}

// site answers GET /bytes/N from bytes that were made once, and anything else with a word: the body of a request is there, whole,
// before it is called, and it does not look at it.
func site() http.Handler {
	var made sync.Map
	mux := http.NewServeMux()
	mux.HandleFunc("/bytes/{count}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("count")
		content, ok := made.Load(name)
		if !ok {
			count, err := strconv.Atoi(name)
			if err != nil || count < 0 || count > messageBytesMax {
				http.Error(w, "not a count", http.StatusBadRequest)
				return
			}
			content, _ = made.LoadOrStore(name, pattern(count))
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(content.([]byte))
	})
	mux.HandleFunc("/taken", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "taken")
	})
	return mux
}

func pattern(count int) []byte {
	content := make([]byte, count)
	for i := range content {
		content[i] = byte(uint32(i) * 2654435761 >> 24)
	}
	return content
}
