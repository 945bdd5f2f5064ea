// An agent's connection to the coordinator of its job.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// Contract of every link: messages arrive in order, once, as long as the link holds. The handlers are called
// from the io_context that the link was made with, never from inside a call.
class CoordinatorLink {
 public:
  struct Handlers {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    // The link is gone, not by Close(): kUnavailable with the cause. Called at most once, last.
    std::function<void(const absl::Status&)> on_lost;
  };

  virtual ~CoordinatorLink() = default;
  virtual void Start(Handlers handlers) = 0;  // once
  virtual void Send(const proto::AgentMessage& message) = 0;
  // Says what was sent before, then hangs up. No handler is called afterwards.
  virtual void Close() = 0;
};

}  // namespace ddprun
