# Rack::Response alone: new, write, finish. Prints one JSON object: name, ns, objects (allocated by each round).
# Usage: ruby rack_response.rb SECONDS
require "json"
require "rack"

def round
  response = Rack::Response.new
  response.write("Hello, World!")
  response.finish
end

seconds = ARGV.fetch(0).to_f
2000.times { round }
GC.start
count = 0
objects = GC.stat(:total_allocated_objects)
started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
spent = 0.0
while spent < seconds
  1000.times { round }
  count += 1000
  spent = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
end
objects = GC.stat(:total_allocated_objects) - objects
puts JSON.generate(name: "Rack::Response", ns: spent * 1e9 / count, objects: objects.to_f / count, version: Rack.release)
