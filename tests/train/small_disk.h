// A disk that is small and can be filled: a tmpfs that only this process and its children see.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// Gone with the process; the first one gives the process a mount namespace of its own.
//   Threads: one caller at a time; the process has no other thread when the first one is made.
class SmallDisk {
 public:
  // Why this machine cannot have one; empty: it can.
  static std::string WhyNot();

  // REQUIRES: WhyNot() is empty.
  explicit SmallDisk(int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return path_; }
  // Takes all the room that is left.
  void Fill();
  // Gives it back.
  void Free();

 private:
  std::string filler() const { return path_ + "/filler"; }

  std::string path_;
};

}  // namespace ddprun
