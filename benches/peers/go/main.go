// Go's net/http, saying hello. /burn computes for 50 ms; /cold sends the file named by COLD_FILE.
// Usage: hello PORT
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	body := []byte("Hello, World!")
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["Content-Type"] = []string{"text/plain"}
		header["Server"] = []string{"go"}
		w.Write(body)
	})
	mux.HandleFunc("/burn", func(w http.ResponseWriter, r *http.Request) {
		for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		}
		w.Write(body)
	})
	mux.HandleFunc("/cold", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, os.Getenv("COLD_FILE"))
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], mux))
}
