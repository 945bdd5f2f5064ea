// Views of arrays: what collective operations read and write.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace ddprun {

// The type of an element. The numbers are part of the wire format.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,   // IEEE 754 binary16
  kBFloat16 = 3,  // the upper half of a float32
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
};

// The size of an element in bytes; 0 if `dtype` is none of the values above.
constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

// "float32", "bfloat16"; "unknown" if `dtype` is none of the values above.
constexpr const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUInt8:
      return "uint8";
  }
  return "unknown";
}

// Where memory is.
enum class DeviceType : uint8_t {
  kHost = 0,
  kCuda = 1,  // a GPU, through NVIDIA's driver
};
struct Device {
  DeviceType type = DeviceType::kHost;
  int32_t index = 0;  // kCuda: the number of the GPU in this process, as the driver counts them

  friend constexpr bool operator==(const Device& a, const Device& b) {
    return a.type == b.type && a.index == b.index;
  }
  friend constexpr bool operator!=(const Device& a, const Device& b) { return !(a == b); }
};

// A queue of work on a device. A view: the stream belongs to the caller. The host has no streams.
struct Stream {
  Device device = {};
  void* handle = nullptr;  // kCuda: a CUstream (the same as a cudaStream_t) of the device's primary context
};

// `count` consecutive elements at `data`. A view: the memory belongs to the caller.
//   Shapes: `count` >= 0; `data` is aligned to the size of an element, and may be null if `count` is 0.
struct Tensor {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};
};

// Like Tensor, for memory that is only read.
struct ConstTensor {
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  Device device = {};

  ConstTensor() = default;
  ConstTensor(const void* d, int64_t n, DType t, Device where = {})
      : data(d), count(n), dtype(t), device(where) {}
  ConstTensor(const Tensor& t)  // NOLINT: implicit, as a pointer converts to a pointer to const
      : data(t.data), count(t.count), dtype(t.dtype), device(t.device) {}
};

// The DType of a C++ type: float, double, signed integers of 4 and 8 bytes, unsigned char, and char, whose bytes count as
// uint8. 16-bit floating-point numbers have no C++ type here; name their DType.
template <typename T>
constexpr DType DTypeOf() {
  using U = std::remove_cv_t<T>;
  constexpr bool kSigned = std::is_integral_v<U> && std::is_signed_v<U>;
  static_assert(std::is_same_v<U, float> || std::is_same_v<U, double> || std::is_same_v<U, char> ||
                    std::is_same_v<U, unsigned char> || (kSigned && (sizeof(U) == 4 || sizeof(U) == 8)),
                "this type has no DType");
  if constexpr (std::is_same_v<U, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<U, double>) return DType::kFloat64;
  if constexpr (sizeof(U) == 1) return DType::kUInt8;
  if constexpr (sizeof(U) == 4) return DType::kInt32;
  return DType::kInt64;
}

namespace internal {
template <typename T>
Tensor ViewOf(T* data, int64_t count) {
  return {data, count, DTypeOf<T>()};
}
template <typename T>
ConstTensor ViewOf(const T* data, int64_t count) {
  return {data, count, DTypeOf<T>()};
}
}  // namespace internal

// A view of the elements of a std::vector, std::array, std::span or another container with data() and size(): a Tensor,
// or a ConstTensor if the elements are const.
template <typename Container>
auto View(Container&& elements) {
  // A span has the same data() whether it is const or not: its elements live elsewhere.
  using Elements = decltype(elements.data());
  using ConstElements = decltype(std::declval<const std::remove_reference_t<Container>&>().data());
  static_assert(std::is_lvalue_reference_v<Container> || std::is_same_v<Elements, ConstElements>,
                "the view would outlive the container");
  return internal::ViewOf(elements.data(), static_cast<int64_t>(elements.size()));
}

}  // namespace ddprun
