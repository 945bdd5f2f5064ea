#include "worker_sdk/optim/optimizer.h"

#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

std::string StateTensorName(std::string_view optimizer, std::string_view what, std::string_view parameter) {
  DDPRUN_CHECK(optimizer.find_first_of("./") == optimizer.npos && what.find('/') == what.npos &&
                   parameter.find('/') == parameter.npos,
               "a name that cannot be parsed: " << optimizer << "." << what << "/" << parameter);
  return StrCat(optimizer, ".", what, "/", parameter);
}

std::vector<ParameterView> CheckedParameters(std::vector<ParameterView> parameters) {
  std::set<std::string_view> names;
  for (const ParameterView& p : parameters) {
    DDPRUN_CHECK(p.values.size() == p.grads.size(), "parameter " << p.name << ": " << p.values.size()
                                                                 << " values and " << p.grads.size()
                                                                 << " gradients");
    DDPRUN_CHECK(names.insert(p.name).second, "two parameters have the name " << p.name);
  }
  return parameters;
}

}  // namespace ddprun
