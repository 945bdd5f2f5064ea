// A message of PointToPoint, of either kind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "worker_sdk/comm/awaited_operation.h"
#include "worker_sdk/comm/host/point_to_point.h"
#include "worker_sdk/comm/host/staged_message.h"

namespace ddprun {

//   Threads: PointToPoint::mu_ guards what is not constant, except the result and num_moved().
class PointToPoint::Message final : public StagedMessage {
 public:
  // `data`: null for a staged message.
  Message(PointToPoint* owner, const Call& call, char* data, bool is_staged, uint64_t number,
          Duration timeout)
      : StagedMessage(timeout), owner_(owner), is_send_(call.kind == OpKind::kSend), peer_(call.root) {
    transfer_.call = {
        .kind = OpKind::kSend, .dtype = call.dtype, .index = number, .num_bytes = call.num_bytes};
    transfer_.data = data;
    transfer_.is_staged = is_staged;
  }

  Transfer& transfer() { return transfer_; }
  const Transfer& transfer() const { return transfer_; }
  // What num_moved() returns, which does not wait for a caller that moves data.
  void PublishMoved() { num_moved_.store(transfer_.num_moved); }
  bool is_send() const { return is_send_; }
  int peer() const { return peer_; }

  // Must be called once.
  void Finish(Status status) {
    result_ = std::move(status);
    finished_.Set();
  }
  bool finished() const { return finished_.IsSet(); }

  Status Wait(TimePoint deadline) override {
    if (!finished()) {
      internal::Call call = transfer_.call;
      if (!is_send_) call.kind = OpKind::kReceive;
      const internal::AwaitedOperation shown(call);
      owner_->Await(*this, deadline);
    }
    return result_;
  }
  bool Done() override { return finished(); }

  void SetReady(std::span<char> window, size_t num_ready) override {
    owner_->SetReady(*this, window, num_ready);
  }
  size_t num_moved() const override { return num_moved_.load(); }
  void GiveUp() override { owner_->EndFor(*this); }
  std::string name() const override { return owner_->Name(*this); }

 private:
  PointToPoint* const owner_;  // valid until the message has finished
  const bool is_send_;
  const int peer_;
  Transfer transfer_;
  std::atomic<size_t> num_moved_{0};
  Status result_;  // written before finished_ is set, read after
  Event finished_;
};

}  // namespace ddprun
