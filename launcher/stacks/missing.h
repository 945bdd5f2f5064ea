// Sentences about the stacks that are missing.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ddprun {

// Collects reasons, each once, with the processes it applies to.
class Missing {
 public:
  // `what`: for example "no Python stacks".
  void Add(const std::string& what, const std::string& why, pid_t pid);
  // "no Python stacks of processes 12, 13 and 5 more: py-spy is not installed: pip install py-spy". Sorted: the order in which
  // tools end does not matter.
  std::vector<std::string> Sentences() const;

 private:
  struct Reason {
    std::string what, why;
    std::vector<pid_t> pids;
  };
  std::vector<Reason> reasons_;
};

}  // namespace ddprun
