// The record of a register that its voters keep, as the processes of the job see it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/charter/charter_register.h"

namespace ddprun::sim {

// Puts the history of the record together from the results of all calls. No version is missed: a swap that succeeds expects a
// version that was returned to its process before. Checks that the register is linearizable:
// - Each version has one record.
// - A call returns no version that is older than one that was returned before the call began.
class RegisterWatch {
 public:
  using Observer = std::function<void(const RegisterRecord& before, const RegisterRecord& now)>;
  using Broken = std::function<void(const std::string& rule)>;

  // `observer` is called when a version is returned for the first time.
  RegisterWatch(Observer observer, Broken broken)
      : observer_(std::move(observer)), broken_(std::move(broken)) {}
  RegisterWatch(const RegisterWatch&) = delete;
  RegisterWatch& operator=(const RegisterWatch&) = delete;

  // Returns `inner`, observed.
  std::unique_ptr<CharterRegister> Watch(std::unique_ptr<CharterRegister> inner);
  const RegisterRecord& record() const { return record_; }

 private:
  class Watched;

  // `known`: the version that was known when the call began.
  void Returned(const RegisterRecord& record, int64_t known);

  const Observer observer_;
  const Broken broken_;
  RegisterRecord record_;
};

}  // namespace ddprun::sim
