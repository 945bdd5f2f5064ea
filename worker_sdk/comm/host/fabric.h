// What the groups of ranks that one call of Connect created have in common: an error in one group is an error in all, and
// all of them are retired together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"

namespace ddprun {

//   Threads: any.
class Fabric {
 public:
  // A group.
  class Member {
   public:
    // Ends communication with the error `why`, unless it has already ended. Does not block. May call Fabric::End.
    virtual void End(const Status& why) = 0;
    // Gives up all threads, connections and shared memory. Called at most once, after End.
    virtual void Retire() = 0;

   protected:
    ~Member() = default;
  };

  // The place of a group in its fabric. Joins, and ends the group if communication has already ended. The destructor leaves,
  // and returns once the fabric no longer uses the group.
  class Membership {
   public:
    explicit Membership(Fabric& fabric) : fabric_(fabric) {}
    ~Membership() { fabric_.Remove(member_); }
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    // Call it once, when `member` accepts End and Retire.
    void Join(Member* member);
    // Call it when the destruction of the group begins: Retire is not called from then on, but Fabric::Retire waits for the
    // end of this object. End may still be called. Blocks while the group is being retired.
    void BeginLeaving() { fabric_.BeginLeaving(member_); }

   private:
    Fabric& fabric_;
    Member* member_ = nullptr;
  };

  Fabric();

  // Ends communication in all groups with the error `why`, unless it has already ended.
  void End(const Status& why);
  // The error with which communication has ended in all groups; OK if it has not.
  [[nodiscard]] Status status() const;
  // Returns once communication has ended, or after `timeout`. A connection that breaks may be a consequence of a death
  // that is reported a little later.
  void AwaitEnd(Duration timeout) const;
  // An eventfd that is readable once communication has ended, and the groups know it.
  [[nodiscard]] int ended_fd() const { return ended_fd_.get(); }

  // Ends communication in all groups as End does, and takes from each group its threads, its connections and the memory that
  // it shares with other processes. Handles of the groups stay valid: rank and size are as before, and all operations fail
  // with the first error. This rank's part of a Buffer stays, also with its contents, until the Buffer is destroyed; no other
  // process accesses it once all ranks of the node have returned from Retire or have exited. What stays of the fabric is one
  // descriptor, an eventfd, until the last handle is gone.
  //   Blocks:  until callers on other threads have left the groups: those that wait for an operation do so within the time of
  //            a few chunks; those that destroy a group, within a second.
  //   Threads: call it once, while no thread creates the fabric's first group.
  void Retire(const Status& why);

 private:
  struct Place {
    Member* member;
    bool leaving = false;
  };
  // As End, if communication has not ended. Requires mu_.
  void EndLocked(const Status& why);
  void BeginLeaving(Member* member);
  void Remove(Member* member);

  const UniqueFd ended_fd_;
  std::atomic<bool> ended_{false};  // End was called; ending a group calls End again
  mutable std::mutex mu_;           // guards the members below
  std::condition_variable changed_;
  Status end_;
  std::vector<Place> places_;
  Member* retiring_ = nullptr;  // its Retire runs
};

}  // namespace ddprun
