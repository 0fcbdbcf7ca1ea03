// httpgrpc as github.com/grafana/dskit has it: server and client.
package main

import (
	"context"
	"net"
	"net/http"

	"github.com/grafana/dskit/httpgrpc"
	"github.com/grafana/dskit/httpgrpc/server"
	"github.com/grafana/dskit/user"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"causeway.invalid/peers/httpgrpc/cases"
)

func main() {
	cases.Main(cases.Peer{Serve: serve, Dial: dial, Front: front})
}

func serve(listener net.Listener, site http.Handler, options cases.Options) error {
	var own []server.Option
	if options.Errors4xx {
		own = append(own, server.WithReturn4XXErrors)
	}
	var limits []grpc.ServerOption
	if options.Limit > 0 {
		limits = append(limits, grpc.MaxRecvMsgSize(options.Limit), grpc.MaxSendMsgSize(options.Limit))
	}
	s := grpc.NewServer(limits...)
	httpgrpc.RegisterHTTPServer(s, server.NewServer(site, own...))
	return s.Serve(listener)
}

func connect(address string, options cases.Options) (*grpc.ClientConn, error) {
	limits := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if options.Limit > 0 {
		limits = append(limits, grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(options.Limit), grpc.MaxCallSendMsgSize(options.Limit)))
	}
	return grpc.NewClient("passthrough:///"+address, limits...)
}

func dial(address string, options cases.Options) (cases.Caller, error) {
	connection, err := connect(address, options)
	if err != nil {
		return nil, err
	}
	client := httpgrpc.NewHTTPClient(connection)
	return func(ctx context.Context, call *cases.Call) cases.Outcome {
		var more []grpc.CallOption
		if call.Gzip {
			more = append(more, grpc.UseCompressor(gzip.Name))
		}
		request := &httpgrpc.HTTPRequest{Method: call.Method, Url: call.URL, Body: call.Content()}
		for _, field := range call.Fields {
			request.Headers = append(request.Headers, &httpgrpc.Header{Key: field[0], Values: []string{field[1]}})
		}
		response, err := client.Handle(httpgrpc.AppendRequestMetadataToContext(ctx, request), request, more...)
		var outcome cases.Outcome
		if err != nil {
			told := status.Convert(err)
			outcome.Code, outcome.Message = int(told.Code()), told.Message()
			for _, detail := range told.Proto().GetDetails() {
				outcome.Details = append(outcome.Details, detail.GetTypeUrl())
			}
			response, outcome.InError = httpgrpc.HTTPResponseFromError(err)
		}
		if response != nil {
			outcome.Status = int(response.Code)
			outcome.Fields = map[string][]string{}
			for _, field := range response.Headers {
				outcome.Fields[field.Key] = append(outcome.Fields[field.Key], field.Values...)
			}
			outcome.SetBody(response.Body)
		}
		return outcome
	}, nil
}

// front is the library's own client where it has its own limits, which it cannot be told otherwise. That one asks for a tenant.
func front(address string, options cases.Options) (http.Handler, error) {
	if options.Limit == 0 {
		client, err := server.NewClient("direct://" + address)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			client.ServeHTTP(w, r.WithContext(user.InjectOrgID(r.Context(), "a tenant")))
		}), err
	}
	connection, err := connect(address, options)
	if err != nil {
		return nil, err
	}
	client := httpgrpc.NewHTTPClient(connection)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := httpgrpc.FromHTTPRequest(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		response, err := client.Handle(r.Context(), request)
		if err != nil {
			httpgrpc.WriteError(w, err)
			return
		}
		httpgrpc.WriteResponse(w, response)
	}), nil
}
