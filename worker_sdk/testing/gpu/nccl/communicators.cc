#include "worker_sdk/testing/gpu/nccl/communicators.h"

#include <algorithm>
#include <utility>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {

Communicators& Communicators::Get() {
  static Communicators* const communicators = new Communicators;
  return *communicators;
}

ncclComm_t Communicators::Add(std::shared_ptr<Communicator> communicator) {
  std::lock_guard lock(mutex_);
  const auto handle = reinterpret_cast<ncclComm_t>(next_ += 16);
  communicators_[handle] = std::move(communicator);
  return handle;
}

std::shared_ptr<Communicator> Communicators::Find(const char* call, ncclComm_t handle) {
  std::lock_guard lock(mutex_);
  const auto it = communicators_.find(handle);
  if (it == communicators_.end())
    Misuse(call, ": no such communicator: ", handle, "; it may have been destroyed or aborted");
  return it->second;
}

void Communicators::Remove(ncclComm_t handle) {
  std::lock_guard lock(mutex_);
  communicators_.erase(handle);
}

void Communicators::FailAll(ncclResult_t error) {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, communicator] : communicators_) communicator->Fail(error);
}

Group& Group::OfThread() {
  static thread_local Group group;
  return group;
}

void Group::Add(std::shared_ptr<Communicator> communicator, std::shared_ptr<WorkQueue> queue,
                Operation operation) {
  const auto same = [&](const Entry& entry) {
    return entry.communicator == communicator && entry.queue == queue;
  };
  const auto it = std::find_if(entries_.begin(), entries_.end(), same);
  Entry& entry = it != entries_.end()
                     ? *it
                     : entries_.emplace_back(Entry{std::move(communicator), std::move(queue), {}});
  entry.operations.push_back(std::move(operation));
}

bool Group::NonBlocking() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& e) { return !e.communicator->blocking(); });
}

ncclResult_t Group::End(const char* call) {
  if (depth_ == 0) Misuse(call, ": without ncclGroupStart");
  // NCCL returns the state of the communicator, which another thread of it may change.
  if (--depth_ > 0) return NonBlocking() && ++calls_ % 3 == 0 ? ncclInProgress : ncclSuccess;
  std::vector<std::shared_ptr<Communicator>> used = std::exchange(created_, {});
  std::vector<std::pair<Communicator*, std::vector<Launch>>> launches;
  for (Entry& entry : std::exchange(entries_, {})) {
    Communicator* const communicator = entry.communicator.get();
    auto it = std::find_if(launches.begin(), launches.end(),
                           [&](const auto& l) { return l.first == communicator; });
    if (it == launches.end()) {
      used.push_back(std::move(entry.communicator));
      it = launches.insert(launches.end(), {communicator, {}});
    }
    const char* const name = entry.operations[0].call;
    it->second.push_back(
        {name, std::move(entry.queue), std::make_shared<Batch>(std::move(entry.operations))});
  }
  for (auto& [communicator, batches] : launches) {
    const char* const name = batches[0].call;
    const Communicator::Call scope(*communicator, name);
    communicator->Add(name, std::move(batches));
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& communicator : used) {
    const ncclResult_t one = communicator->Result();
    if (result == ncclSuccess || result == ncclInProgress) result = one == ncclSuccess ? result : one;
  }
  return result;
}

}  // namespace ddprun::stand_in

void StandInFailCommunicators(int result) {
  ddprun::stand_in::Communicators::Get().FailAll(static_cast<ncclResult_t>(result));
}
