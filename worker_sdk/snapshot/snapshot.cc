#include "worker_sdk/snapshot/snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "ddprun/status.h"
#include "worker_sdk/core/json.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored in memory layout");

constexpr std::string_view kMagic = "ddpsnap\n";
constexpr uint32_t kVersion = 1;
constexpr size_t kFixedBytes = 16;  // magic, version, size of the JSON

// The names of dtypes in the file, indexed by DType.
constexpr std::string_view kDTypeNames[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"};

std::string_view Name(DType dtype) { return kDTypeNames[static_cast<size_t>(dtype)]; }

std::optional<DType> DTypeNamed(std::string_view name) {
  const auto found = std::ranges::find(kDTypeNames, name);
  if (found == std::end(kDTypeNames)) return std::nullopt;
  return static_cast<DType>(found - std::begin(kDTypeNames));
}

Status Damaged(std::string_view what) { return DataLossError(what); }

// Returns the number of elements in `shape`; -1 if a dimension is negative or the size in bytes might
// overflow.
int64_t NumElems(std::span<const int64_t> shape) {
  int64_t num_elems = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && num_elems > std::numeric_limits<int64_t>::max() / 8 / dim)) return -1;
    num_elems *= dim;
  }
  return num_elems;
}

// Reads fields of the head. status() names the first field that is missing or has the wrong type.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  int64_t Integer(std::string_view name) {
    const Json* value = FindIn(object_, name);
    const std::optional<int64_t> number = value == nullptr ? std::nullopt : IntegerIn(*value);
    return number ? *number : Miss(name, int64_t{0});
  }
  std::string String(std::string_view name) {
    const Json* value = FindIn(object_, name);
    return value != nullptr && value->is_string() ? value->get<std::string>() : Miss(name, std::string());
  }
  const Json* Object(std::string_view name) {
    const Json* value = FindIn(object_, name);
    return value != nullptr && value->is_object() ? value : Miss<const Json*>(name, nullptr);
  }
  const Json* Array(std::string_view name) {
    const Json* value = FindIn(object_, name);
    return value != nullptr && value->is_array() ? value : Miss<const Json*>(name, nullptr);
  }

  const Status& status() const { return status_; }

 private:
  template <typename T>
  T Miss(std::string_view name, T nothing) {
    if (status_.ok()) status_ = Damaged(StrCat("the head has no valid \"", name, "\""));
    return nothing;
  }

  const Json& object_;
  Status status_;
};

Json Describe(const TensorView& tensor, int64_t offset) {
  Json object;
  object["name"] = tensor.name;
  object["dtype"] = Name(tensor.dtype);
  object["shape"] = tensor.shape;
  object["offset"] = offset;
  object["bytes"] = static_cast<int64_t>(tensor.bytes.size());
  object["sha256"] = ToHex(Sha256Of(tensor.bytes));
  return object;
}

// Parses the description of a tensor. The tensor's bytes must be at the beginning of `data`, and the
// description must declare the offset `offset`.
StatusOr<TensorView> ParseTensor(const Json& described, std::string_view data, int64_t offset) {
  if (!described.is_object()) return Damaged("the head has a tensor description that is not an object");
  Fields fields(described);
  TensorView tensor{.name = fields.String("name"), .dtype = DType::kFloat32, .shape = {}, .bytes = {}};
  const std::string dtype = fields.String("dtype"), sha256 = fields.String("sha256");
  const Json* shape = fields.Array("shape");
  const int64_t bytes = fields.Integer("bytes"), declared_offset = fields.Integer("offset");
  DDPRUN_RETURN_IF_ERROR(fields.status(), tensor.name);
  for (const Json& dim : *shape) {
    const std::optional<int64_t> number = IntegerIn(dim);
    if (!number)
      return Damaged(StrCat("tensor ", tensor.name, " has a shape that is not a list of integers"));
    tensor.shape.push_back(*number);
  }
  const std::optional<DType> known = DTypeNamed(dtype);
  if (!known) return UnimplementedError(StrCat("tensor ", tensor.name, " has unknown dtype ", dtype));
  tensor.dtype = *known;
  const int64_t num_elems = NumElems(tensor.shape);
  if (num_elems < 0 || bytes != num_elems * SizeOf(tensor.dtype) || declared_offset != offset) {
    return Damaged(StrCat("the head is inconsistent about tensor ", tensor.name));
  }
  if (static_cast<uint64_t>(bytes) > data.size()) {
    return Damaged(StrCat("torn: tensor ", tensor.name, " of ", bytes, " bytes begins ", data.size(),
                          " bytes before the file's end"));
  }
  tensor.bytes = data.substr(0, bytes);
  if (ToHex(Sha256Of(tensor.bytes)) != sha256) {
    return Damaged(StrCat("damaged: the bytes of tensor ", tensor.name, " do not match their checksum"));
  }
  return tensor;
}

// Verifies the head's checksum and returns the head's JSON text.
StatusOr<std::string_view> CheckHead(std::string_view file) {
  if (file.size() < kFixedBytes || file.substr(0, kMagic.size()) != kMagic) {
    return Damaged(
        StrCat("not a snapshot, or torn: a file of ", file.size(), " bytes without a snapshot's signature"));
  }
  uint32_t version, json_bytes;
  std::memcpy(&version, file.data() + 8, 4);
  std::memcpy(&json_bytes, file.data() + 12, 4);
  if (version > kVersion) {
    return UnimplementedError(
        StrCat("format version ", version, ", but this program reads up to version ", kVersion));
  }
  if (version == 0) return Damaged("damaged: format version 0");
  if (file.size() < kFixedBytes + json_bytes + Sha256::kBytes) {
    return Damaged(StrCat("torn: a head of ", json_bytes, " bytes in a file of ", file.size()));
  }
  const Sha256::Digest digest = Sha256Of(file.substr(0, kFixedBytes + json_bytes));
  if (file.substr(kFixedBytes + json_bytes, Sha256::kBytes) !=
      std::string_view(digest.data(), digest.size())) {
    return Damaged("damaged: the head's bytes do not match their checksum");
  }
  return file.substr(kFixedBytes, json_bytes);
}

template <typename T>
Status CopyTensor(const Snapshot& snapshot, std::string_view name, DType dtype, std::span<T> elems) {
  const auto found = std::find_if(snapshot.tensors.begin(), snapshot.tensors.end(),
                                  [&](const TensorView& tensor) { return tensor.name == name; });
  if (found == snapshot.tensors.end()) return NotFoundError(StrCat("there is no tensor ", name));
  if (found->dtype != dtype || found->bytes.size() != elems.size() * sizeof(T)) {
    return FailedPreconditionError(StrCat("tensor ", name, " is ", Name(found->dtype), " in ",
                                          found->bytes.size(), " bytes, not ", Name(dtype), " in ",
                                          elems.size() * sizeof(T)));
  }
  std::memcpy(elems.data(), found->bytes.data(), found->bytes.size());
  return OkStatus();
}

template <typename T>
TensorView View(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const T> elems) {
  return {std::move(name), dtype, std::move(shape),
          std::string_view(reinterpret_cast<const char*>(elems.data()), elems.size() * sizeof(T))};
}

}  // namespace

TensorView ViewOf(std::string name, std::vector<int64_t> shape, std::span<const float> elems) {
  return View(std::move(name), DType::kFloat32, std::move(shape), elems);
}
TensorView ViewOf(std::string name, std::vector<int64_t> shape, std::span<const double> elems) {
  return View(std::move(name), DType::kFloat64, std::move(shape), elems);
}

StatusOr<int64_t> Snapshot::Integer(const std::string& attribute) const {
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return NotFoundError(StrCat("there is no attribute ", attribute));
  const std::optional<int64_t> value = ParseNumber<int64_t>(found->second);
  if (value) return *value;
  return Damaged(StrCat("attribute ", attribute, "=\"", found->second, "\" is not an integer"));
}

Status Snapshot::Copy(std::string_view tensor, std::span<float> elems) const {
  return CopyTensor(*this, tensor, DType::kFloat32, elems);
}
Status Snapshot::Copy(std::string_view tensor, std::span<double> elems) const {
  return CopyTensor(*this, tensor, DType::kFloat64, elems);
}

std::string EncodeSnapshotHead(const Snapshot& snapshot) {
  Json attributes = Json::object();
  for (const auto& [key, value] : snapshot.attributes) attributes[key] = value;
  Json tensors = Json::array();
  int64_t offset = 0;
  for (const TensorView& tensor : snapshot.tensors) {
    DDPRUN_CHECK(NumElems(tensor.shape) * SizeOf(tensor.dtype) == static_cast<int64_t>(tensor.bytes.size()),
                 tensor.name.c_str());
    tensors.push_back(Describe(tensor, offset));
    offset += tensor.bytes.size();
  }
  Json head;
  head["step"] = snapshot.step;
  head["world_size"] = snapshot.world_size;
  head["round"] = snapshot.round.value();
  head["attributes"] = std::move(attributes);
  head["data_bytes"] = offset;
  head["tensors"] = std::move(tensors);
  const std::string text = ToText(head);

  const uint32_t version = kVersion, json_bytes = static_cast<uint32_t>(text.size());
  DDPRUN_CHECK(json_bytes == text.size(), "the head exceeds 4 GiB");
  std::string bytes(kMagic);
  bytes.append(reinterpret_cast<const char*>(&version), 4);
  bytes.append(reinterpret_cast<const char*>(&json_bytes), 4);
  bytes += text;
  const Sha256::Digest digest = Sha256Of(bytes);
  bytes.append(digest.data(), digest.size());
  return bytes;
}

StatusOr<ParsedSnapshot> ParseSnapshot(std::string_view file) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string_view text, CheckHead(file));
  const std::optional<Json> head = ParseJson(text);
  if (!head || !head->is_object()) return Damaged("the head is not a JSON object");
  Fields fields(*head);
  ParsedSnapshot parsed;
  Snapshot& snapshot = parsed.snapshot;
  snapshot.step = fields.Integer("step");
  snapshot.world_size = static_cast<int>(fields.Integer("world_size"));
  snapshot.round = Round(fields.Integer("round"));
  const Json* attributes = fields.Object("attributes");
  const Json* tensors = fields.Array("tensors");
  const int64_t data_bytes = fields.Integer("data_bytes");
  DDPRUN_RETURN_IF_ERROR(fields.status());

  const size_t head_bytes = kFixedBytes + text.size() + Sha256::kBytes;
  const std::string_view data = file.substr(head_bytes);
  if (static_cast<int64_t>(data.size()) != data_bytes) {
    return Damaged(StrCat("torn: ", file.size(), " bytes instead of ", head_bytes + data_bytes));
  }
  for (const auto& [key, value] : attributes->items()) {
    if (!value.is_string()) return Damaged("the head has an attribute that is not a string");
    snapshot.attributes.emplace(key, value.get<std::string>());
  }
  std::set<std::string> names;
  int64_t offset = 0;
  for (const Json& described : *tensors) {
    DDPRUN_ASSIGN_OR_RETURN(TensorView tensor, ParseTensor(described, data.substr(offset), offset));
    offset += tensor.bytes.size();
    if (!names.insert(tensor.name).second) return Damaged(StrCat("duplicate tensor ", tensor.name));
    snapshot.tensors.push_back(std::move(tensor));
  }
  if (offset != data_bytes) return Damaged("the head is inconsistent about the size of the data");
  parsed.sha256 = ToHex(Sha256Of(file.substr(0, head_bytes)));
  return parsed;
}

}  // namespace ddprun
