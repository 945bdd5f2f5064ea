// A group whose process dies at one of its operations.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/group.h"

namespace ddprun {

// A rank kills itself in a round, at one of its operations, before or after it was started.
struct Death {
  int rank = -1, round = 0, operation = 0, after = 0;
  bool operator==(const Death&) const = default;
};

// Kills this process at an operation of the group, or of a part of it.
class DyingGroup final : public internal::Group {
 public:
  struct Fate {
    int num_operations = 0;
    std::optional<Death> death;
    std::function<void()> before_death;  // may be empty
  };
  DyingGroup(std::shared_ptr<internal::Group> group, std::shared_ptr<Fate> fate)
      : group_(std::move(group)), fate_(std::move(fate)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Status status() const override { return group_->status(); }
  std::shared_ptr<internal::Operation> Start(const internal::Call& call, const void* in, void* out) override {
    const bool dies = Count();
    auto operation = group_->Start(call, in, out);
    if (dies) Die();
    return operation;
  }
  std::shared_ptr<internal::Operation> Refuse(const internal::Call& call, const Status& why) override {
    return group_->Refuse(call, why);
  }
  void Abort(std::string_view reason) override { group_->Abort(reason); }
  StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) override {
    const bool dies = Count();
    auto memory = group_->Allocate(dtype, count);
    if (dies) Die();
    return memory;
  }
  StatusOr<std::shared_ptr<internal::Group>> Split(int color, int key) override {
    const bool dies = Count();
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> part, group_->Split(color, key));
    if (dies) Die();
    if (part == nullptr) return part;
    return std::shared_ptr<internal::Group>(std::make_shared<DyingGroup>(std::move(part), fate_));
  }

 private:
  // Returns whether the process dies after the operation was started.
  bool Count() {
    if (!fate_->death || fate_->num_operations++ != fate_->death->operation) return false;
    if (fate_->death->after == 0) Die();
    return true;
  }
  void Die() const {
    if (fate_->before_death) fate_->before_death();
    raise(SIGKILL);
  }
  const std::shared_ptr<internal::Group> group_;
  const std::shared_ptr<Fate> fate_;
};

}  // namespace ddprun
