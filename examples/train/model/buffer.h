// A fixed-size array, aligned to 64 bytes (a cache line) and initialized to zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace ddprun::train {

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t num_elems) : size_(num_elems), data_(new (kAlignment) T[num_elems]()) {}

  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<T> span() { return {data(), size()}; }
  [[nodiscard]] std::span<const T> span() const { return {data(), size()}; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, kAlignment); }
  };
  size_t size_ = 0;
  std::unique_ptr<T[], Free> data_;
};

}  // namespace ddprun::train
