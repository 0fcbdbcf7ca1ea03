module bench/http2hello

go 1.26
