#include "worker_sdk/optim/state_buffer.h"

#include <span>
#include <string_view>

namespace ddprun {

StateBuffer::StateBuffer(std::string_view optimizer, std::string_view what,
                         std::span<const ParameterView> parameters) {
  size_t num_elems = 0;
  for (const ParameterView& p : parameters) num_elems += p.values.size();
  values_.resize(num_elems);
  std::span<float> rest = std::span(values_);
  for (const ParameterView& p : parameters) {
    tensors_.push_back({StateTensorName(optimizer, what, p.name), p.shape, rest.first(p.values.size())});
    rest = rest.subspan(p.values.size());
  }
}

}  // namespace ddprun
