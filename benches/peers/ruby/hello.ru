# Rack's hello for Puma: a Rack::Response, made and finished for each request.
require "rack"

run ->(env) {
  response = Rack::Response.new
  response["Content-Type"] = "text/plain"
  response.write("Hello, World!")
  response.finish
}
