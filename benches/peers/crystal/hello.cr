# Crystal's HTTP::Server, saying hello. /burn computes for 50 ms where it stands.
# Usage: hello PORT
require "http/server"

server = HTTP::Server.new do |context|
  if context.request.path == "/burn"
    ends = Time.monotonic + 50.milliseconds
    while Time.monotonic < ends
    end
  end
  context.response.content_type = "text/plain"
  context.response.headers["Server"] = "crystal"
  context.response.content_length = 13
  context.response.print "Hello, World!"
end
server.bind_tcp "127.0.0.1", ARGV[0].to_i
server.listen
