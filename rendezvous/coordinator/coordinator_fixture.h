// A test fixture for Coordinator. Calls such as SendFrom(a_, Joining("a")) send messages to the coordinator.
// Fake agents record the messages that the coordinator sends.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/wake_timer.h"
#include "boost/json/serialize.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/testing/join.h"

namespace ddprun {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A fake agent. It records each received message as a short string, for example "stop r0".
class FakePeer : public AgentPeer {
 public:
  explicit FakePeer(bool in_process = false) : in_process_(in_process) {}

  void Send(SharedMessage shared) override {
    sent_.push_back(shared);
    const proto::CoordinatorMessage& message = *shared;
    last_ = message;
    switch (message.kind_case()) {
      case proto::CoordinatorMessage::kWelcome:
        return received_.push_back(absl::StrCat("welcome ", message.welcome().heartbeat_ms()));
      case proto::CoordinatorMessage::kWaiting:
        return;
      case proto::CoordinatorMessage::kStart:
        return received_.push_back(absl::StrCat("start r", message.start().round(), " node",
                                                message.start().group_rank(), "/",
                                                message.start().group_world_size()));
      case proto::CoordinatorMessage::kStop:
        return received_.push_back(absl::StrCat("stop r", message.stop().round()));
      case proto::CoordinatorMessage::kDismiss:
        return received_.push_back(
            absl::StrCat("dismiss ", proto::DismissReason_Name(message.dismiss().reason()).substr(15)));
      case proto::CoordinatorMessage::kRefuse:
        return received_.push_back("refuse");
      case proto::CoordinatorMessage::kHeard:
        return received_.push_back("heard");
      case proto::CoordinatorMessage::kTakeSnapshot:
        return received_.push_back(absl::StrCat("snapshot r", message.take_snapshot().round()));
      case proto::CoordinatorMessage::kCollectEvidence:
        return received_.push_back(absl::StrCat("evidence r", message.collect_evidence().round()));
      case proto::CoordinatorMessage::kCollectStacks:
        return received_.push_back("stacks");
      case proto::CoordinatorMessage::kReport:
        return received_.push_back(absl::StrCat("report r", message.report().round()));
      case proto::CoordinatorMessage::KIND_NOT_SET:
        return received_.push_back("?");
    }
  }
  void End() override { received_.push_back("end"); }
  std::string address() const override { return "10.0.0.7"; }
  bool in_process() const override { return in_process_; }

  // Returns the messages received since the last call.
  std::vector<std::string> Received() { return std::exchange(received_, {}); }
  const proto::CoordinatorMessage& last() const { return last_; }
  size_t count() const { return sent_.size(); }
  size_t count(proto::CoordinatorMessage::KindCase kind) const {
    return std::count_if(sent_.begin(), sent_.end(),
                         [kind](const SharedMessage& m) { return m->kind_case() == kind; });
  }
  // Returns the last message of kind `kind`, or null if no such message was received.
  SharedMessage LastOf(proto::CoordinatorMessage::KindCase kind) const {
    for (auto it = sent_.rbegin(); it != sent_.rend(); ++it) {
      if ((*it)->kind_case() == kind) return *it;
    }
    return nullptr;
  }

  PeerId id = 0;

 private:
  const bool in_process_;
  std::vector<std::string> received_;
  std::vector<SharedMessage> sent_;
  proto::CoordinatorMessage last_;
};

inline proto::AgentMessage Joining(const std::string& node, const std::string& job = "j", int min = 2,
                                   int max = 2) {
  proto::AgentMessage message = JoinOf(node, max, job);
  auto& rules = *message.mutable_join()->mutable_rules();
  rules["min_nodes"] = min;
  rules["max_restarts"] = 1;
  rules["first_last_call_ms"] = 30'000;
  rules["last_call_ms"] = 30'000;
  return message;
}

inline proto::AgentMessage Beating() {
  proto::AgentMessage message;
  message.mutable_heartbeat();
  return message;
}

inline proto::AgentMessage Leaving() {
  proto::AgentMessage message;
  message.mutable_leave()->set_reason("maintenance");
  message.mutable_leave()->set_workers_gone(true);
  return message;
}

class CoordinatorTest : public ::testing::Test {
 protected:
  using Messages = std::vector<std::string>;

  Messages SendFrom(FakePeer& peer, const proto::AgentMessage& message) {
    if (peer.id == 0) peer.id = coordinator_->Attach(&peer);
    coordinator_->Receive(peer.id, message);
    return peer.Received();
  }
  // Requests whose answer must come at once.
  absl::StatusOr<std::string> Drain(const std::string& job, const std::string& node, const std::string& why) {
    return Ask([&](Coordinator::Reply reply) { coordinator_->Drain(job, node, why, std::move(reply)); });
  }
  absl::StatusOr<std::string> Stop(const std::string& job, const std::string& why) {
    return Ask([&](Coordinator::Reply reply) { coordinator_->Stop(job, why, std::move(reply)); });
  }
  template <typename F>
  absl::StatusOr<std::string> Ask(F request) {
    absl::StatusOr<std::string> answer = absl::InternalError("no answer");
    request([&answer](const absl::StatusOr<std::string>& text) { answer = text; });
    return answer;
  }
  void HangUp(FakePeer& peer) { coordinator_->Detach(peer.id, "it hung up"); }
  void Limit(CoordinatorLimits limits) {
    coordinator_ = std::make_unique<Coordinator>(
        std::make_unique<AsioWakeTimer>(io_), [](absl::string_view, absl::string_view, absl::string_view) {},
        limits);
  }
  // Runs the coordinator's timer until the peer has received a message, and returns the received messages.
  // Returns an empty list if no message is received within 20 s.
  Messages Await(FakePeer& peer) {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    for (;;) {
      if (Messages messages = peer.Received(); !messages.empty()) return messages;
      const auto left = end - std::chrono::steady_clock::now();
      io_.restart();
      if (left <= Duration::zero() || io_.run_one_for(left) == 0) return {};
    }
  }
  size_t num_jobs() const { return coordinator_->Status().at("jobs").as_array().size(); }

  boost::asio::io_context io_;
  FakePeer a_, b_, c_;
  std::unique_ptr<Coordinator> coordinator_ = std::make_unique<Coordinator>(
      std::make_unique<AsioWakeTimer>(io_), [](absl::string_view, absl::string_view, absl::string_view) {});
};

}  // namespace ddprun
