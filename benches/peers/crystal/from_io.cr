# How long HTTP::Request.from_io takes for one six-line request, read from a file and from memory, and how many bytes
# it allocates. Prints one JSON object a line: name, ns, bytes. Usage: from_io FILE SECONDS
require "http"
require "json"

def measure(name : String, seconds : Float64, &)
  (1..2000).each { yield }
  GC.collect
  count = 0_i64
  allocated = GC.stats.total_bytes
  started = Time.monotonic
  until Time.monotonic - started >= seconds.seconds
    1000.times { yield }
    count += 1000
  end
  spent = Time.monotonic - started
  allocated = GC.stats.total_bytes - allocated
  puts({name: name, ns: spent.total_nanoseconds / count, bytes: allocated / count}.to_json)
end

content = File.read(ARGV[0])
seconds = ARGV[1].to_f
file = File.open(ARGV[0])
memory = IO::Memory.new(content)

measure("file", seconds) do
  file.rewind
  request = HTTP::Request.from_io(file)
  raise "not a request" unless request.is_a?(HTTP::Request)
end
measure("memory", seconds) do
  memory.rewind
  request = HTTP::Request.from_io(memory)
  raise "not a request" unless request.is_a?(HTTP::Request)
end
