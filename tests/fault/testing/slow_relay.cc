// A TCP relay that simulates a slow link: slow_relay IP PORT DELAY_MS
//
// Listens on a free port of 127.0.0.1, prints the port on one line, and relays data to and from IP:PORT
// with a delay of DELAY_MS in each direction. Runs until it is killed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Both sockets of one relayed connection. They are closed when both directions have ended.
struct Pair {
  explicit Pair(tcp::socket socket) : near(std::move(socket)), far(near.get_executor()) {}
  tcp::socket near;
  tcp::socket far;
};

// Data in flight in one direction.
struct Link {
  explicit Link(const asio::any_io_executor& executor) : news(executor, Clock::time_point::max()) {}
  std::deque<std::pair<Clock::time_point, std::vector<char>>>
      chunks;               // an empty chunk marks the end of the stream
  asio::steady_timer news;  // never expires; cancelled when a chunk arrives, which wakes Send
};

asio::awaitable<void> Receive([[maybe_unused]] std::shared_ptr<Pair> keeps_open, tcp::socket& from,
                              std::shared_ptr<Link> link, std::chrono::milliseconds delay) {
  for (;;) {
    std::vector<char> chunk(1 << 16);
    const auto [error, n] = co_await from.async_read_some(asio::buffer(chunk), kAwait);
    chunk.resize(error ? 0 : n);
    link->chunks.emplace_back(Clock::now() + delay, std::move(chunk));
    link->news.cancel();
    if (error) co_return;
  }
}

asio::awaitable<void> Send([[maybe_unused]] std::shared_ptr<Pair> keeps_open, tcp::socket& to,
                           std::shared_ptr<Link> link) {
  asio::steady_timer due(to.get_executor());
  for (;;) {
    while (link->chunks.empty()) co_await link->news.async_wait(kAwait);
    const auto [at, chunk] = std::move(link->chunks.front());
    link->chunks.pop_front();
    due.expires_at(at);
    co_await due.async_wait(kAwait);
    boost::system::error_code ignored;
    if (chunk.empty()) {
      to.shutdown(tcp::socket::shutdown_send, ignored);
      co_return;
    }
    const auto [error, n] = co_await asio::async_write(to, asio::buffer(chunk), kAwait);
    if (error) co_return;
  }
}

asio::awaitable<void> Relay(tcp::socket socket, tcp::endpoint target, std::chrono::milliseconds delay) {
  const auto pair = std::make_shared<Pair>(std::move(socket));
  const auto executor = pair->near.get_executor();
  const auto [error] = co_await pair->far.async_connect(target, kAwait);
  if (error) co_return;
  pair->near.set_option(tcp::no_delay(true));
  pair->far.set_option(tcp::no_delay(true));
  const auto out = std::make_shared<Link>(executor), in = std::make_shared<Link>(executor);
  asio::co_spawn(executor, Receive(pair, pair->near, out, delay), asio::detached);
  asio::co_spawn(executor, Send(pair, pair->far, out), asio::detached);
  asio::co_spawn(executor, Receive(pair, pair->far, in, delay), asio::detached);
  asio::co_spawn(executor, Send(pair, pair->near, in), asio::detached);
}

asio::awaitable<void> Accept(tcp::acceptor& acceptor, tcp::endpoint target, std::chrono::milliseconds delay) {
  for (;;) {
    auto [error, socket] = co_await acceptor.async_accept(kAwait);
    if (error) co_return;
    asio::co_spawn(acceptor.get_executor(), Relay(std::move(socket), target, delay), asio::detached);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  asio::io_context io(1);
  const tcp::endpoint target(asio::ip::make_address(argv[1]), static_cast<uint16_t>(std::atoi(argv[2])));
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  std::printf("%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  asio::co_spawn(io, Accept(acceptor, target, std::chrono::milliseconds(std::atoi(argv[3]))), asio::detached);
  io.run();
}
