// A small disk that a test can fill. It is a tmpfs that is visible only to this process and its children.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// The disk is unmounted by the destructor, or by the kernel when the process exits. The first call of WhyNot
// moves the process into a new mount namespace.
//   Threads: one caller at a time.
//   REQUIRES: the process has only one thread at the first call of WhyNot.
class SmallDisk {
 public:
  // Returns the reason why this machine cannot create a small disk; empty if it can.
  static std::string WhyNot();

  // REQUIRES: WhyNot() is empty.
  explicit SmallDisk(int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return path_; }
  // Fills the disk.
  void Fill();
  // Frees the space taken by Fill.
  void Free();

 private:
  std::string filler() const { return path_ + "/filler"; }

  std::string path_;
};

}  // namespace ddprun
