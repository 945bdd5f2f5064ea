#include "worker_sdk/device/host/gradients.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "worker_sdk/comm/element.h"

namespace ddprun {
namespace {

template <typename To, typename T>
void CompressTo(const T* in, int64_t count, float divisor, float* residual, uint16_t* out) {
  if (residual == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = To::Store(static_cast<float>(in[i]) / divisor);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float exact = static_cast<float>(in[i]) / divisor + residual[i];
    out[i] = To::Store(exact);
    const float rounded = To::Load(out[i]);
    residual[i] = std::isfinite(rounded) ? exact - rounded : 0;
  }
}

template <typename From, typename T>
void DecompressTo(const uint16_t* in, int64_t count, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(From::Load(in[i]));
}

// Calls f with the element type of 16 bits, and with a null pointer to the other type.
template <typename F>
void WithTypes(DType wide, DType narrow, F f) {
  DDPRUN_CHECK(wide == DType::kFloat32 || wide == DType::kFloat64, "cannot compress " << NameOf(wide));
  DDPRUN_CHECK(SizeOf(narrow) == 2, "cannot compress to " << NameOf(narrow));
  const auto with_narrow = [&](auto element) {
    if (wide == DType::kFloat32) return f(element, static_cast<float*>(nullptr));
    return f(element, static_cast<double*>(nullptr));
  };
  return narrow == DType::kFloat16 ? with_narrow(Float16Element()) : with_narrow(BFloat16Element());
}

}  // namespace

void Compress(const ConstTensor& in, float divisor, float* residual, const Tensor& out) {
  WithTypes(in.dtype, out.dtype, [&]<typename To, typename T>(To, T*) {
    CompressTo<To>(static_cast<const T*>(in.data), in.count, divisor, residual,
                   static_cast<uint16_t*>(out.data));
  });
}

void Decompress(const ConstTensor& in, const Tensor& out) {
  WithTypes(out.dtype, in.dtype, [&]<typename From, typename T>(From, T*) {
    DecompressTo<From>(static_cast<const uint16_t*>(in.data), in.count, static_cast<T*>(out.data));
  });
}

void Multiply(double factor, const Tensor& inout) {
  WithFormat(inout.dtype, [&]<typename Element>(Element) {
    auto* values = static_cast<typename Element::Stored*>(inout.data);
    using Value = typename Element::Value;
    for (int64_t i = 0; i < inout.count; ++i) {
      values[i] = Element::Store(static_cast<Value>(static_cast<double>(Element::Load(values[i])) * factor));
    }
  });
}

double ElementAt(const ConstTensor& tensor, int64_t i) {
  return WithFormat(tensor.dtype, [&]<typename Element>(Element) {
    return static_cast<double>(Element::Load(static_cast<const typename Element::Stored*>(tensor.data)[i]));
  });
}

void SetElement(const Tensor& tensor, int64_t i, double value) {
  WithFormat(tensor.dtype, [&]<typename Element>(Element) {
    static_cast<typename Element::Stored*>(tensor.data)[i] =
        Element::Store(static_cast<typename Element::Value>(value));
  });
}

void GlobalNorm::Add(const ConstTensor& tensor) {
  WithFormat(tensor.dtype, [&]<typename Element>(Element) {
    AddElements<Element>(static_cast<const typename Element::Stored*>(tensor.data), tensor.count);
  });
}

template <typename Element>
void GlobalNorm::AddElements(const typename Element::Stored* values, int64_t count) {
  while (count > 0) {
    const int64_t in_block = std::min(count, kBlock - filled_);
    int64_t i = 0;
    const auto add = [&](int64_t index, int64_t lane) {
      const auto x = static_cast<double>(Element::Load(values[index]));
      lanes_[lane] += x * x;
    };
    for (; i < in_block && (filled_ + i) % kLanes != 0; ++i) add(i, (filled_ + i) % kLanes);
    for (; i + kLanes <= in_block; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (; i < in_block; ++i) add(i, (filled_ + i) % kLanes);
    values += in_block;
    count -= in_block;
    filled_ += in_block;
    if (filled_ < kBlock) continue;
    sum_ += BlockSum();
    std::fill(std::begin(lanes_), std::end(lanes_), 0);
    filled_ = 0;
  }
}

double GlobalNorm::BlockSum() const {
  return ((lanes_[0] + lanes_[4]) + (lanes_[2] + lanes_[6])) +
         ((lanes_[1] + lanes_[5]) + (lanes_[3] + lanes_[7]));
}

double GlobalNorm::value() const { return std::sqrt(sum_ + BlockSum()); }

}  // namespace ddprun
