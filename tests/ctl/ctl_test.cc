// Tests ddpctl against a real coordinator.

#include "launcher/ctl/ctl.h"

#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/write.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/testing/io_thread.h"
#include "rendezvous/server/coordinator_host.h"
#include "rendezvous/testing/join.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A stream buffer with a future that becomes ready when the stream is flushed for the first time.
class Screen : public std::stringbuf {
 public:
  std::future<void> Shown() { return shown_.get_future(); }

 private:
  int sync() override {
    if (!std::exchange(is_shown_, true)) shown_.set_value();
    return 0;
  }
  std::promise<void> shown_;
  bool is_shown_ = false;
};

struct CtlResult {
  int exit_code = 0;
  std::string out;
  std::string err;
};

class CtlTest : public ::testing::Test {
 protected:
  ~CtlTest() override {
    thread_.Run([this] {
      link_.reset();
      host_.reset();
    });
  }

  // Lets the agent in the coordinator's process join a job of `nodes` nodes.
  void JoinHere(int nodes) {
    thread_.Run([this, nodes] {
      link_ = host_->Link("10.0.0.1");
      link_->Start({.on_message =
                        [this](const proto::CoordinatorMessage& m) {
                          if (m.has_stop()) link_->Send(ReadyFor(static_cast<int>(m.stop().round())));
                        },
                    .on_lost = {}});
      proto::AgentMessage message = JoinOf("here/1", nodes, "job/1");
      message.mutable_join()->set_host("here");
      message.mutable_join()->set_nproc(2);
      link_->Send(message);
    });
    // Messages are posted to the event loop, so these two calls return after the messages have been handled.
    thread_.Run([] {});
    thread_.Run([] {});
  }
  CtlResult Ctl(std::vector<std::string> args) const {
    args.push_back(absl::StrCat("--rdzv-endpoint=127.0.0.1:", host_->port()));
    std::ostringstream out, err;
    const int exit_code = RunCtl(args, nullptr, {out, err});
    return {exit_code, out.str(), err.str()};
  }

  IoThread thread_;
  std::unique_ptr<CoordinatorHost> host_ = thread_.Run([this] {
    return CoordinatorHost::Open(thread_.io(), "127.0.0.1", 0,
                                 [](absl::string_view, absl::string_view, absl::string_view) {})
        .value();
  });
  std::unique_ptr<CoordinatorLink> link_;
};

TEST_F(CtlTest, StatusShowsAJobThatWaitsForNodes) {
  EXPECT_EQ(Ctl({"status"}).out, "no jobs\n");
  JoinHere(2);
  const CtlResult result = Ctl({"status"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("job job/1: gathering"), HasSubstr("waiting: 1/2 nodes joined"),
                                HasSubstr("here")));
  EXPECT_THAT(Ctl({"status", "--json"}).out, HasSubstr("\"run_id\":\"job/1\""));
  EXPECT_THAT(Ctl({"status", "--job=k"}).err, HasSubstr("there is no job k; known jobs: job/1"));
  EXPECT_EQ(Ctl({"status", "--job=k"}).exit_code, 3);
}

TEST_F(CtlTest, EventsListsTheEventsOfTheJob) {
  EXPECT_THAT(Ctl({"events"}).err, HasSubstr("the coordinator has no job"));
  JoinHere(1);
  EXPECT_THAT(Ctl({"events"}).out, AllOf(HasSubstr("node_joined       node here (here/1) with 2 workers\n"),
                                         HasSubstr("round_sealed      round 0")));
  EXPECT_THAT(Ctl({"events", "--job=job/1", "--json"}).out, HasSubstr("\"seq\":2,"));
}

TEST_F(CtlTest, StopEndsTheJobAndItsWatchers) {
  JoinHere(1);
  std::future<CtlResult> watch = std::async(std::launch::async, [this] {
    return Ctl({"status", "--watch"});
  });
  std::future<CtlResult> follow = std::async(std::launch::async, [this] {
    return Ctl({"events", "--follow"});
  });
  const CtlResult stop = Ctl({"stop", "--reason=maintenance"});
  EXPECT_EQ(stop.exit_code, 0) << stop.err;
  EXPECT_EQ(stop.out, "job job/1 is being stopped on 1 node\n");
  for (auto* watcher : {&watch, &follow}) {
    const CtlResult result = watcher->get();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("maintenance"));
  }
  const CtlResult again = Ctl({"stop"});
  EXPECT_EQ(again.exit_code, 3);
  EXPECT_THAT(again.err, HasSubstr("job job/1 is over: stopped"));
}

TEST_F(CtlTest, WatchEndsWhenTheCoordinatorExits) {
  JoinHere(1);
  Screen screen;
  std::future<void> shown = screen.Shown();
  std::future<int> watch = std::async(std::launch::async, [&screen, port = host_->port()] {
    std::ostream out(&screen);
    std::ostringstream err;
    return RunCtl({"status", "--watch", absl::StrCat("--rdzv-endpoint=127.0.0.1:", port)}, nullptr,
                  {out, err, /*redraw=*/true});
  });
  ASSERT_EQ(shown.wait_for(seconds(20)), std::future_status::ready);
  thread_.Run([this] {
    link_.reset();
    host_.reset();
  });
  EXPECT_EQ(watch.get(), 0);
  EXPECT_THAT(screen.str(), HasSubstr("the coordinator has exited"));
}

TEST_F(CtlTest, ReportsThatNoCoordinatorAnswers) {
  const int port = host_->port();
  thread_.Run([this] { host_.reset(); });
  for (const char* command : {"status", "events", "stop"}) {
    std::ostringstream out, err;
    EXPECT_EQ(RunCtl({command, absl::StrCat("--rdzv-endpoint=127.0.0.1:", port)}, nullptr, {out, err}), 1);
    EXPECT_THAT(err.str(), HasSubstr(absl::StrCat("no coordinator answers at 127.0.0.1:", port)));
  }
}

// ddpctl does not show a page from another HTTP server. Because the page may be endless, ddpctl does not read
// all of the page.
TEST_F(CtlTest, ReportsAnHttpServerThatIsNotACoordinator) {
  boost::asio::io_context io;
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(io, tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0));
  for (const char* status : {"200 OK", "404 Not Found"}) {
    std::future<size_t> sent = std::async(std::launch::async, [&] {
      tcp::socket peer = acceptor.accept();
      boost::system::error_code error;
      const std::string head =
          absl::StrCat("HTTP/1.1 ", status, "\r\nServer: other\r\nContent-Type: text/html\r\n\r\n");
      boost::asio::write(peer, boost::asio::buffer(head), error);
      const std::string page(1 << 16, 'x');
      size_t total = 0;
      while (!error && total < (512u << 20))
        total += boost::asio::write(peer, boost::asio::buffer(page), error);
      return total;
    });
    std::ostringstream out, err;
    EXPECT_EQ(RunCtl({"status", absl::StrCat("--rdzv-endpoint=127.0.0.1:", acceptor.local_endpoint().port())},
                     nullptr, {out, err}),
              1);
    EXPECT_THAT(err.str(), AllOf(HasSubstr("no coordinator answers at 127.0.0.1:"),
                                 HasSubstr("another HTTP server"), Not(HasSubstr("xx"))));
    EXPECT_THAT(out.str(), IsEmpty());
    EXPECT_LT(sent.get(), 64u << 20) << "ddpctl read more than the socket buffers hold";
  }
}

TEST_F(CtlTest, DrainErrorsNameTheCause) {
  JoinHere(1);
  const CtlResult own = Ctl({"drain", "here"});
  EXPECT_EQ(own.exit_code, 3);
  EXPECT_THAT(own.err,
              HasSubstr("node here hosts the coordinator and cannot be taken out; stop the job instead"));
  EXPECT_THAT(Ctl({"drain", "n9"}).err, HasSubstr("there is no node n9; known hosts: here"));
}

TEST_F(CtlTest, UsageErrorsNameTheCause) {
  const struct {
    std::vector<std::string> args;
    const char* error;
  } cases[] = {
      {{}, "expected a command (status, events, drain, preempt, stop, stacks or slurm-script), not \"\""},
      {{"--job=j", "slurm-script"}, "slurm-script: expected it as the first argument"},
      {{"slurm-script", "--nodes=0", "--", "x"}, "slurm-script: --nodes=0: expected a number of nodes"},
      {{"start"}, "not \"start\""},
      {{"drain"}, "drain: expected a node"},
      {{"preempt"}, "preempt: expected a node"},
      {{"preempt", "n1"}, "preempt: expected --deadline=TIME"},
      {{"preempt", "n1", "--deadline=soon"},
       "--deadline=soon: expected a time of more than 0, such as 90s or 2m"},
      {{"preempt", "n1", "--deadline=0"}, "--deadline=0: expected a time"},
      {{"preempt", "n1", "--deadline=inf"}, "--deadline=inf: expected a time"},
      {{"preempt", "n1", "--deadline=9s", "--back-in=-1"}, "--back-in=-1: expected a time"},
      {{"drain", "n1", "--deadline=9s"}, "--deadline cannot be used with drain"},
      {{"stop", "n1"}, "unexpected \"n1\" after stop"},
      {{"stop", "--watch"}, "--watch cannot be used with stop"},
      {{"status", "--follow"}, "--follow cannot be used with status"},
      {{"status", "--reason=x"}, "--reason cannot be used with status"},
      {{"drain", "n1", "--json"}, "--json cannot be used with drain"},
      {{"status", "--rdzv-endpoint=:x"}, "--rdzv-endpoint"},
  };
  for (const auto& c : cases) {
    std::ostringstream out, err;
    EXPECT_EQ(RunCtl(c.args, nullptr, {out, err}), 2);
    EXPECT_THAT(err.str(), AllOf(HasSubstr(c.error), HasSubstr("see ddpctl --help")));
    EXPECT_THAT(out.str(), IsEmpty());
  }
  std::ostringstream out, err;
  EXPECT_EQ(RunCtl({"--help"}, nullptr, {out, err}), 0);
  for (const char* text : {"drain NODE", "--watch", "--follow", "--reason", "Exit codes:\n  0  success"})
    EXPECT_THAT(out.str(), HasSubstr(text));
}

}  // namespace
}  // namespace ddprun
