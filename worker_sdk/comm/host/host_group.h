// The group of the host backend, for backends that use it to find the other ranks, to exchange small values, and to learn
// which ranks have died.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/options.h"
#include "worker_sdk/comm/host/staged_message.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

//   Threads: those of Group; the functions below: any.
class HostGroupInterface : public internal::Group {
 public:
  // Ends communication in all groups that come from the same Connect, on all ranks, with the error `why`, unless it has
  // already ended; status() then returns that error. Does not block.
  virtual void End(const Status& why) = 0;
  // "rank 3 of round 7": this rank, by its number in the world.
  [[nodiscard]] virtual std::string Name() const = 0;
  // The error of operations that need a rank which has left, if one of the group has; otherwise OK.
  [[nodiscard]] virtual Status LeftStatus() const = 0;
  // The ranks that are stopped or cut off, by their numbers in the world. Blocks at most 200 ms.
  [[nodiscard]] virtual std::vector<int> RanksThatDoNotAnswer() = 0;
  // Starts a kSend or kReceive whose payload is not in memory of the host.
  //   Threads: those of Group.
  virtual std::shared_ptr<StagedMessage> StartStaged(const internal::Call& call) = 0;
  // Remembers a call that this rank makes elsewhere, on its GPU. If another rank has posted another call of that number,
  // communication ends with an error that names both.
  //   REQUIRES: call.index is the number of calls before. One caller at a time.
  virtual void NoteCall(const internal::Call& call) = 0;
  // This rank waits for the operation of call `index`: sends that call to all ranks of the group, which compare it with their
  // own. Best effort; does not block. attempt: number of earlier calls of this function with this index.
  virtual void PostCall(uint64_t index, uint32_t attempt) = 0;
  [[nodiscard]] virtual const HostCommunicatorOptions& options() const = 0;
  // Exists as long as this object.
  [[nodiscard]] virtual Fabric* fabric() = 0;
};

// As CreateHostCommunicator. Groups that Split returns are HostGroupInterface as well.
//   fabric: of no other group that was created so; null: a new one. If it ends during this call, its error is returned at once,
//           unless the call blocks in `store`.
StatusOr<std::shared_ptr<HostGroupInterface>> CreateHostGroup(const HostCommunicatorOptions& options,
                                                              Store* store,
                                                              std::shared_ptr<Fabric> fabric = nullptr);

}  // namespace ddprun
