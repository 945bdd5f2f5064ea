// A small disk that a test can fill: a tmpfs visible only to this process and its children.
#pragma once

#include <cstdint>
#include <string>

namespace ddprun {

// The disk ends with the process. The first object moves the process into a new mount namespace.
//   Threads: one caller at a time.
//   REQUIRES: the process has only one thread when the first object is created.
class SmallDisk {
 public:
  // Why this machine cannot create one; empty: it can.
  static std::string WhyNot();

  // REQUIRES: WhyNot() is empty.
  explicit SmallDisk(int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return path_; }
  // Uses up all free space.
  void Fill();
  // Frees the space taken by Fill.
  void Free();

 private:
  std::string filler() const { return path_ + "/filler"; }

  std::string path_;
};

}  // namespace ddprun
