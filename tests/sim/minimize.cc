#include "tests/sim/minimize.h"

#include <algorithm>
#include <utility>

namespace ddprun::sim {

Script Minimized(Script script, const std::function<bool(const Script&)>& fails) {
  size_t part = std::max<size_t>(1, script.faults.size() / 2);
  while (true) {
    bool smaller = false;
    for (size_t begin = 0; begin < script.faults.size();) {
      Script without = script;
      const size_t end = std::min(begin + part, without.faults.size());
      without.faults.erase(without.faults.begin() + begin, without.faults.begin() + end);
      if (fails(without)) {
        script = std::move(without);
        smaller = true;
      } else {
        begin = end;
      }
    }
    if (part > 1) {
      part /= 2;
    } else if (!smaller) {
      return script;
    }
  }
}

}  // namespace ddprun::sim
