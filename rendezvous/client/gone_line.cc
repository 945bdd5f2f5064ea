#include "rendezvous/client/gone_line.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "net/http_client.h"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

constexpr auto kConnectLimit = std::chrono::seconds(5);

struct Attempt {
  explicit Attempt(boost::asio::io_context& io) : socket(io), timer(io) {}
  tcp::socket socket;
  boost::asio::steady_timer timer;
};

}  // namespace

std::string GoneMessage(const std::string& run_id, const std::string& node_id, const std::string& token) {
  return absl::StrCat("DELETE /nodes?job=", QueryEscaped(run_id), "&node=", QueryEscaped(node_id),
                      "&token=", QueryEscaped(token),
                      " HTTP/1.1\r\nHost: coordinator\r\nConnection: close\r\n\r\n");
}

void OpenGoneLine(boost::asio::io_context& io, const std::string& address, int port,
                  std::function<void(absl::StatusOr<tcp::socket>)> done) {
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(address, error);
  if (error) {
    return boost::asio::post(io, [address, done = std::move(done)] {
      done(absl::UnavailableError(absl::StrCat(address, " is not a numeric address")));
    });
  }
  const auto attempt = std::make_shared<Attempt>(io);
  attempt->timer.expires_after(kConnectLimit);
  attempt->timer.async_wait([attempt](const boost::system::error_code& ended) {
    boost::system::error_code ignored;
    if (!ended) attempt->socket.cancel(ignored);
  });
  attempt->socket.async_connect(tcp::endpoint(ip, static_cast<uint16_t>(port)),
                                [attempt, done = std::move(done)](const boost::system::error_code& failed) {
                                  attempt->timer.cancel();
                                  if (failed) return done(absl::UnavailableError(failed.message()));
                                  boost::system::error_code ignored;
                                  // Without keepalive, middleboxes may drop an idle connection.
                                  attempt->socket.set_option(boost::asio::socket_base::keep_alive(true),
                                                             ignored);
                                  done(std::move(attempt->socket));
                                });
}

}  // namespace ddprun
