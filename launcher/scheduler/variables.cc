#include "launcher/scheduler/variables.h"

#include "absl/strings/numbers.h"

namespace ddprun {

std::string ValueOf(const GetEnv& get_env, absl::string_view variable) {
  return get_env(variable).value_or("");
}

absl::StatusOr<int> NumberIn(const GetEnv& get_env, absl::string_view variable, int min, int max,
                             absl::string_view setter) {
  const std::string text = ValueOf(get_env, variable);
  if (int number = 0; absl::SimpleAtoi(text, &number) && number >= min && number <= max) return number;
  return BadVariable(variable, text, "expected a number from ", min, " to ", max, ", as ", setter,
                     " sets it");
}

}  // namespace ddprun
