// Matrix products whose bits depend only on the factors.
//
// One loop (Product) computes all elements, including those at the edges: each element is one chain of
// multiplications and additions, in ascending order of k. Neither the number of rows, nor the position of an
// element, the alignment of arrays, or the sizes of caches affect it. Multiply cuts chains at multiples of
// kDepth, and adds the sums of the pieces one after the other.
//
// The right factor is packed into panels of kPanel columns. A block of kDepth rows of a panel stays in the L1
// cache while the rows of the left factor pass by. Tiles of kTileRows x kPanel elements are held in registers.
//
// Compiled once for each CPU variant, into the namespace DDPRUN_CPU; only layers.cc includes this file.
#pragma once

#include <cstdint>

namespace ddprun::train::DDPRUN_CPU {

#if defined(__AVX2__) && defined(__FMA__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
constexpr int kLanes = kVectorBytes / sizeof(T);

constexpr int kTileRows = 6;  // with two vectors per row, a tile uses 12 of 16 registers
template <typename T>
constexpr int kPanel = 2 * kLanes<T>;
constexpr int64_t kDepth = 256;      // rows of a panel that stay in the L1 cache: 16 KiB
constexpr int64_t kBlockRows = 384;  // rows of the left factor that stay in the L2 cache: 384 KiB of float

template <typename T>
struct Tile {
  Vector<T> rows[kTileRows][2];
};

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements of a packed [depth,columns] matrix, and of a left factor packed by PackRows.
template <typename T>
int64_t PackedElems(int64_t depth, int64_t columns) {
  return depth * RoundUp(columns, kPanel<T>);
}
inline int64_t PackedRowsElems(int64_t depth, int64_t rows) { return depth * RoundUp(rows, kTileRows); }

// Packs b [depth,columns]; `stride` is the distance between its rows. Missing columns are zero.
template <typename T>
void Pack(T* packed, const T* b, int64_t stride, int64_t depth, int64_t columns) {
  constexpr int64_t kRowsAtOnce = 8;  // so that rows are read, and panels written, in long pieces
  for (int64_t k0 = 0; k0 < depth; k0 += kRowsAtOnce) {
    const int64_t end = Least(k0 + kRowsAtOnce, depth);
    for (int64_t j = 0; j < columns; j += kPanel<T>) {
      const int64_t width = Least(kPanel<T>, columns - j);
      for (int64_t k = k0; k < end; ++k) {
        T* to = packed + j * depth + k * kPanel<T>;
        const T* from = b + k * stride + j;
        if (width == kPanel<T>) {
          __builtin_memcpy(to, from, kPanel<T> * sizeof(T));
          continue;
        }
        for (int64_t i = 0; i < kPanel<T>; ++i) to[i] = i < width ? from[i] : T(0);
      }
    }
  }
}

// Replaces two vectors by their elements in turn: first those of the lower halves, then those of the upper halves.
template <typename T>
[[gnu::always_inline]] inline void Interleave(Vector<T>& low, Vector<T>& high) {
  const Vector<T> a = low, b = high;
  if constexpr (kLanes<T> == 8) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else if constexpr (kLanes<T> == 4) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else {
    low = __builtin_shufflevector(a, b, 0, 2);
    high = __builtin_shufflevector(a, b, 1, 3);
  }
}

// Packs the transpose of b [columns,depth]. Missing columns are zero.
template <typename T>
void PackTransposed(T* packed, const T* b, int64_t stride, int64_t depth, int64_t columns) {
  constexpr int kN = kLanes<T>;
  for (int64_t j = 0; j < columns; j += kPanel<T>) {
    T* panel = packed + j * depth;
    const int64_t width = Least(kPanel<T>, columns - j);
    int64_t k = 0;
    // Squares of kN x kN elements: each step of Interleave merges the lines that are half of the square apart.
    for (; width == kPanel<T> && k + kN <= depth; k += kN) {
      for (int64_t i = 0; i < kPanel<T>; i += kN) {
        Vector<T> lines[kN];
        for (int r = 0; r < kN; ++r)
          __builtin_memcpy(&lines[r], b + (j + i + r) * stride + k, sizeof lines[r]);
        for (int step = 1; step < kN; step *= 2) {
          Vector<T> merged[kN];
          for (int r = 0; r < kN / 2; ++r) {
            merged[2 * r] = lines[r];
            merged[2 * r + 1] = lines[r + kN / 2];
            Interleave<T>(merged[2 * r], merged[2 * r + 1]);
          }
          for (int r = 0; r < kN; ++r) lines[r] = merged[r];
        }
        for (int r = 0; r < kN; ++r)
          __builtin_memcpy(panel + (k + r) * kPanel<T> + i, &lines[r], sizeof lines[r]);
      }
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < kPanel<T>; ++i) {
        panel[k * kPanel<T> + i] = i < width ? b[(j + i) * stride + k] : T(0);
      }
    }
  }
}

// Packs the transpose of a [depth,rows] as a left factor: panels of kTileRows rows, with the rows of one k
// next to each other. Missing rows are zero.
template <typename T>
void PackRows(T* packed, const T* a, int64_t stride, int64_t depth, int64_t rows) {
  constexpr int64_t kAtOnce = 8;
  for (int64_t k0 = 0; k0 < depth; k0 += kAtOnce) {
    const int64_t end = Least(k0 + kAtOnce, depth);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const int64_t height = Least(kTileRows, rows - i);
      for (int64_t k = k0; k < end; ++k) {
        T* to = packed + i * depth + k * kTileRows;
        const T* from = a + k * stride + i;
        if (height == kTileRows) {
          __builtin_memcpy(to, from, kTileRows * sizeof(T));
          continue;
        }
        for (int64_t r = 0; r < kTileRows; ++r) to[r] = r < height ? from[r] : T(0);
      }
    }
  }
}

// Sets the tile to the sum over k < depth of a(i, k) * panel(k, j). Element (i, k) of the left factor is at
// a[i * row_stride + k * kStep]; rows from `rows` on repeat the last row. A function of its own, so that the
// sums stay in registers.
template <int kStep, typename T>
[[gnu::noinline]] void Product(Tile<T>& tile, const T* a, int64_t row_stride, int64_t rows, const T* panel,
                               int64_t depth) {
  int64_t row[kTileRows];
  for (int i = 0; i < kTileRows; ++i) row[i] = Least(i, rows - 1) * row_stride;
  Tile<T> sum = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> left, right;
    __builtin_memcpy(&left, panel, sizeof left);
    __builtin_memcpy(&right, panel + kLanes<T>, sizeof right);
    panel += kPanel<T>;
    for (int i = 0; i < kTileRows; ++i) {
      const T factor = a[row[i]];
      sum.rows[i][0] += left * factor;
      sum.rows[i][1] += right * factor;
    }
    a += kStep;
  }
  tile = sum;
}

// Arrays that are added to a product, in this order. Each is laid out like the product; one may be its place.
template <typename T>
struct Addends {
  const T* arrays[64] = {};
  int count = 0;
  const T* row = nullptr;   // then one row, which is added to all rows: from the first column of the tile on
  const T* last = nullptr;  // then one more array

  void Add(const T* array) { arrays[count++] = array; }
};

// Loads the lines of a tile into the cache, so that a later Store does not wait for memory.
template <typename T>
void PrefetchForStore(const T* tile, int64_t stride, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(tile + i * stride, 1);
}

// c = tile + addends, on rows x columns elements at `offset`.
template <typename T>
[[gnu::always_inline]] inline void Store(T* c, int64_t offset, int64_t stride, const Tile<T>& tile,
                                         int64_t rows, int64_t columns, const Addends<T>& addends) {
  if (columns < kPanel<T>) {
    T elems[kTileRows][kPanel<T>];
    __builtin_memcpy(elems, &tile, sizeof elems);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        T value = elems[i][j];
        for (int t = 0; t < addends.count; ++t) value += addends.arrays[t][offset + i * stride + j];
        if (addends.row != nullptr) value += addends.row[j];
        if (addends.last != nullptr) value += addends.last[offset + i * stride + j];
        c[offset + i * stride + j] = value;
      }
    }
    return;
  }
  for (int i = 0; i < kTileRows && i < rows; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int64_t at = offset + i * stride + half * kLanes<T>;
      Vector<T> value = tile.rows[i][half], other;
      const auto add = [&](const T* from) {
        __builtin_memcpy(&other, from, sizeof other);
        value += other;
      };
      for (int t = 0; t < addends.count; ++t) add(addends.arrays[t] + at);
      if (addends.row != nullptr) add(addends.row + half * kLanes<T>);
      if (addends.last != nullptr) add(addends.last + at);
      __builtin_memcpy(c + at, &value, sizeof value);
    }
  }
}

// A right factor b [depth,columns] as it is in memory.
template <typename T>
struct RightFactor {
  const T* data;
  int64_t stride;      // distance between rows of `data`
  bool is_transposed;  // `data` is [columns,depth]

  void PackPanel(T* packed, int64_t k, int64_t j, int64_t depth, int64_t width) const {
    if (is_transposed) {
      PackTransposed(packed, data + j * stride + k, stride, depth, width);
    } else {
      Pack(packed, data + k * stride + j, stride, depth, width);
    }
  }
};

// Loads a block of the right factor into the cache, one cache line after the other.
template <typename T>
class Prefetcher {
 public:
  // `depth`, `width`: 0 if there is no block.
  Prefetcher(const RightFactor<T>& b, int64_t k, int64_t j, int64_t depth, int64_t width)
      : row_(b.data + (b.is_transposed ? j * b.stride + k : k * b.stride + j)),
        stride_(b.stride),
        row_elems_(b.is_transposed ? depth : width),
        rows_left_(b.is_transposed ? width : depth) {}

  void Next() {
    if (rows_left_ == 0) return;
    __builtin_prefetch(row_ + at_);
    at_ += kLineElems;
    if (at_ < row_elems_) return;
    at_ = 0;
    row_ += stride_;
    --rows_left_;
  }

 private:
  static constexpr int64_t kLineElems = 64 / sizeof(T);
  const T* row_;
  const int64_t stride_;
  const int64_t row_elems_;
  int64_t rows_left_;
  int64_t at_ = 0;
};

// Of the block that Multiply uses after the one at (k, j).
template <typename T>
Prefetcher<T> PrefetcherAfter(const RightFactor<T>& b, int64_t k, int64_t j, int64_t depth, int64_t columns) {
  j += kPanel<T>;
  if (j >= columns) {
    j = 0;
    k += kDepth;
  }
  if (k >= depth) return Prefetcher<T>(b, 0, 0, 0, 0);
  return Prefetcher<T>(b, k, j, Least(kDepth, depth - k), Least(kPanel<T>, columns - j));
}

template <typename T>
constexpr int64_t kBlockLines = kDepth* kPanel<T> * sizeof(T) / 64;  // cache lines of a block

// c [rows,columns] = a [rows,depth] * b + bias + addend, added in this order. `bias` [columns] and `addend`, which is
// laid out like c, may be null. Packs b block by block, and loads the next block into the cache meanwhile. With few rows, to
// pack all of b first takes a tenth of the time.
template <typename T>
void Multiply(T* c, int64_t c_stride, const T* a, int64_t a_stride, const RightFactor<T>& b, int64_t rows,
              int64_t depth, int64_t columns, const T* bias, const T* addend) {
  alignas(64) T panel[kDepth * kPanel<T>];
  for (int64_t i0 = 0; i0 < rows; i0 += kBlockRows) {
    const int64_t end = Least(i0 + kBlockRows, rows);
    const int64_t lines_per_tile = kBlockLines<T> * kTileRows / (end - i0) + 1;
    for (int64_t k = 0; k < depth; k += kDepth) {
      const int64_t block_depth = Least(kDepth, depth - k);
      const bool is_last = k + block_depth == depth;
      Addends<T> addends;
      if (k > 0) addends.Add(c);
      if (is_last) addends.last = addend;
      for (int64_t j = 0; j < columns; j += kPanel<T>) {
        const int64_t width = Least(kPanel<T>, columns - j);
        b.PackPanel(panel, k, j, block_depth, width);
        Prefetcher<T> next = PrefetcherAfter(b, k, j, depth, columns);
        if (is_last && bias != nullptr) addends.row = bias + j;
        for (int64_t i = i0; i < end; i += kTileRows) {
          const int64_t height = Least(kTileRows, end - i);
          PrefetchForStore(c + i * c_stride + j, c_stride, height);
          for (int64_t n = 0; n < lines_per_tile; ++n) next.Next();
          Tile<T> tile;
          Product<1>(tile, a + i * a_stride + k, a_stride, height, panel, block_depth);
          Store(c, i * c_stride + j, c_stride, tile, height, width, addends);
        }
      }
    }
  }
}

// c [rows,columns] = addends + the sum over `terms` of a[term] * b[term], in the order of tree_sum.h.
// `rows_packed` has the left factors [rows,depth], each packed by PackRows, and `packed` the right ones.
template <typename T>
void SumOfProducts(T* c, int64_t c_stride, const T* rows_packed, const T* packed, int64_t rows, int64_t terms,
                   int64_t depth, int64_t columns, const Addends<T>& addends) {
  constexpr int kLevels = 48;
  const int64_t left_elems = PackedRowsElems(depth, rows), right_elems = PackedElems<T>(depth, columns);
  const int64_t block = Least(kBlockRows * kDepth / (terms * depth) / kTileRows + 1, rows) * kTileRows;
  Tile<T> waiting[kLevels];  // sums of complete subtrees
  for (int64_t i0 = 0; i0 < rows; i0 += block) {
    for (int64_t j = 0; j < columns; j += kPanel<T>) {
      for (int64_t i = i0; i < Least(i0 + block, rows); i += kTileRows) {
        PrefetchForStore(c + i * c_stride + j, c_stride, Least(kTileRows, rows - i));
        int count = 0;
        Tile<T> sum = {};
        for (int64_t term = 0; term < terms; ++term) {
          Product<kTileRows>(sum, rows_packed + term * left_elems + i * depth, 1, kTileRows,
                             packed + term * right_elems + j * depth, depth);
          // At the end, everything is merged; before, only subtrees of equal size.
          const bool last = term + 1 == terms;
          for (int64_t bits = term; last ? count > 0 : (bits & 1) != 0; bits >>= 1) {
            --count;
            for (int r = 0; r < kTileRows; ++r) {
              sum.rows[r][0] += waiting[count].rows[r][0];
              sum.rows[r][1] += waiting[count].rows[r][1];
            }
          }
          if (!last) waiting[count++] = sum;
        }
        Store<T>(c, i * c_stride + j, c_stride, sum, Least(kTileRows, rows - i),
                 Least(kPanel<T>, columns - j), addends);
      }
    }
  }
}

// The products below have a lower triangular factor or result [S,S]. Elements of it with column - row from 1
// to kTileRows - 1 must be zero where it is a factor; the others above the diagonal are not read, and not
// written to a meaningful value.

// lower [S,S] = a [S,depth] * b on and below the diagonal; `packed` is b [depth,S], packed.
template <typename T>
void MultiplyToLower(T* lower, const T* a, int64_t a_stride, const T* packed, int64_t S, int64_t depth) {
  for (int64_t j = 0; j < S; j += kPanel<T>) {
    for (int64_t i = j / kTileRows * kTileRows; i < S; i += kTileRows) {
      const int64_t height = Least(kTileRows, S - i);
      Tile<T> tile;
      Product<1>(tile, a + i * a_stride, a_stride, height, packed + j * depth, depth);
      Store(lower, i * S + j, S, tile, height, Least(kPanel<T>, S - j), Addends<T>());
    }
  }
}

// c [S,columns] = lower * b; `packed` is b [S,columns], packed.
template <typename T>
void MultiplyLower(T* c, int64_t c_stride, const T* lower, const T* packed, int64_t S, int64_t columns) {
  for (int64_t j = 0; j < columns; j += kPanel<T>) {
    for (int64_t i = 0; i < S; i += kTileRows) {
      const int64_t height = Least(kTileRows, S - i);
      Tile<T> tile;
      Product<1>(tile, lower + i * S, S, height, packed + j * S, Least(i + kTileRows, S));
      Store(c, i * c_stride + j, c_stride, tile, height, Least(kPanel<T>, columns - j), Addends<T>());
    }
  }
}

// c [S,columns] = lower^T * b; `packed` is b [S,columns], packed.
//   Shapes:  scratch [PackedRowsElems(S, kTileRows)].
template <typename T>
void MultiplyLowerTransposed(T* c, int64_t c_stride, const T* lower, const T* packed, T* scratch, int64_t S,
                             int64_t columns) {
  for (int64_t i = 0; i < S; i += kTileRows) {
    const int64_t height = Least(kTileRows, S - i), depth = S - i;  // column i of `lower` begins in row i
    PackRows(scratch, lower + i * S + i, S, depth, height);
    for (int64_t j = 0; j < columns; j += kPanel<T>) {
      const T* panel = packed + j * S + i * kPanel<T>;
      Tile<T> tile;
      Product<kTileRows>(tile, scratch, 1, kTileRows, panel, depth);
      Store(c, i * c_stride + j, c_stride, tile, height, Least(kPanel<T>, columns - j), Addends<T>());
    }
  }
}

}  // namespace ddprun::train::DDPRUN_CPU
