#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

StateBuffer::StateBuffer(absl::string_view optimizer, absl::string_view what,
                         absl::Span<const ParameterView> parameters) {
  size_t num_elems = 0;
  for (const ParameterView& p : parameters) num_elems += p.values.size();
  values_.resize(num_elems);
  absl::Span<float> rest = absl::MakeSpan(values_);
  for (const ParameterView& p : parameters) {
    tensors_.push_back({StateTensorName(optimizer, what, p.name), p.shape, rest.first(p.values.size())});
    rest.remove_prefix(p.values.size());
  }
}

}  // namespace ddprun
