// A standalone worker store for tests: prints its port on the first line of standard output and exits at the
// end of its standard input. Connection errors are logged to standard error.

#include <unistd.h>

#include <array>
#include <cstdio>

#include "boost/asio/buffer.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "rendezvous/c10d/c10d_server.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// Discards `input` and calls `ended` at its end.
void AwaitEnd(asio::posix::stream_descriptor& input, std::function<void()> ended) {
  static std::array<char, 256> ignored;
  input.async_read_some(asio::buffer(ignored), [&input, ended](boost::system::error_code ec, size_t) {
    if (ec) return ended();
    AwaitEnd(input, ended);
  });
}

int Main() {
  asio::io_context io(1);
  C10dServerOptions options;
  options.on_error = [](const std::string& peer, const absl::Status& why) {
    std::fprintf(stderr, "event=connection_closed peer=%s reason=\"%s\"\n", peer.c_str(),
                 why.ToString().c_str());
  };
  auto store = WorkerStore::Open(io, "", 0, std::move(options));
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.status().ToString().c_str());
    return 1;
  }
  std::printf("%d\n", (*store)->port());
  std::fflush(stdout);
  asio::posix::stream_descriptor input(io, ::dup(STDIN_FILENO));
  AwaitEnd(input, [&] { (*store)->Close(milliseconds(200), [] {}); });
  io.run();
  return 0;
}

}  // namespace
}  // namespace ddprun

int main() { return ddprun::Main(); }
