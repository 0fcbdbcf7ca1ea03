// Go's net/http over HTTP/2: twelve fields and hello or a page, in the clear by prior knowledge or over TLS.
// Usage: hello PORT [page] [CERTIFICATE KEY]
package main

import (
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
)

var fields = [...][2]string{
	{"Server", "go"},
	{"Content-Type", "text/plain"},
	{"Cache-Control", "public, max-age=3600"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "strict-origin-when-cross-origin"},
	{"Strict-Transport-Security", "max-age=31536000"},
	{"Vary", "Accept-Encoding"},
	{"Etag", `"6740c2a0-c000"`},
	{"Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT"},
}

func main() {
	port, arguments := os.Args[1], os.Args[2:]
	body := []byte("Hello, World!")
	if len(arguments) > 0 && arguments[0] == "page" {
		line := "A page of plain text, as long as a front page is, so that a body does not fit one frame.\n"
		body = []byte(strings.Repeat(line, 48<<10/len(line)+1)[:48<<10])
		arguments = arguments[1:]
	}
	length := strconv.Itoa(len(body))
	server := http.Server{
		Addr:      "127.0.0.1:" + port,
		Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			for i := range fields {
				header[fields[i][0]] = []string{fields[i][1]}
			}
			header["Content-Length"] = []string{length}
			w.Write(body)
		}),
	}
	if len(arguments) == 2 {
		server.Protocols.SetHTTP2(true)
		log.Fatal(server.ListenAndServeTLS(arguments[0], arguments[1]))
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	log.Fatal(server.ListenAndServe())
}
