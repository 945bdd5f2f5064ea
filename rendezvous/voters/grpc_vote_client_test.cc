#include "rendezvous/voters/grpc_vote_client.h"

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

// A peer that does not answer after a fault of the network, as it looks to the client.
class SilentServer {
 public:
  SilentServer() : acceptor_(io_, {boost::asio::ip::make_address("127.0.0.1"), 0}) { Accept(); }
  std::string address() { return absl::StrCat("127.0.0.1:", acceptor_.local_endpoint().port()); }
  // Waits until there have been `n` connections, for at most 10 s. Returns how many there were.
  size_t WaitForConnections(size_t n) {
    const auto end = std::chrono::steady_clock::now() + seconds(10);
    while (sockets_.size() < n && std::chrono::steady_clock::now() < end) io_.run_one_for(seconds(1));
    return sockets_.size();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
      if (error) return;
      sockets_.push_back(std::move(socket));
      Accept();
    });
  }

  boost::asio::io_context io_;
  tcp::acceptor acceptor_;
  std::vector<tcp::socket> sockets_;
};

TEST(GrpcVoteClientTest, AConnectionThatWasSilentForAWholeCallIsReplaced) {
  SilentServer server;
  IoThread thread;
  auto client = thread.Run([&] { return std::make_unique<GrpcVoteClient>(thread.io(), "j"); });
  for (size_t call = 1; call <= 2; ++call) {
    std::promise<absl::Status> done;
    thread.Run([&] {
      client->Send(server.address(), {}, milliseconds(1200),
                   [&done](const absl::StatusOr<VoteReply>& reply) { done.set_value(reply.status()); });
      return 0;
    });
    EXPECT_EQ(server.WaitForConnections(call), call);
    EXPECT_TRUE(absl::IsDeadlineExceeded(done.get_future().get()));
  }
  thread.Run([&] {
    client = nullptr;
    return 0;
  });
}

}  // namespace
}  // namespace ddprun
