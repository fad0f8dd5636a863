// Tensor: a strided, typed view of memory, which several tensors can share.
//
// A Tensor is a value: copying it copies the view and shares the memory, which is released when the last tensor on it
// is destroyed (stream-ordered, back to the caching allocator). Views never copy. Anything that runs on a device is
// enqueued on the current stream of the calling thread and does not block, unless a comment says so.
//
// Threads: copies of a tensor may be used, and the last one destroyed, by any threads; one Tensor object is assigned by
// one thread at a time. Threads that write and read the elements must order these accesses themselves, on one stream or
// with events. If a stream other than that of its allocation uses memory, call Storage::record_stream.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "anyaccel/abi/base.h"
#include "anyaccel/device.h"
#include "anyaccel/dtype.h"
#include "anyaccel/stream.h"

struct aa_packed;  // anyaccel/abi/ops.h

namespace anyaccel {

// Sizes of the dimensions, outermost first. At most AA_MAX_DIMS.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  // Throws InvalidArgument for a negative size, too many dimensions, or more elements than an int64 can count.
  explicit Shape(std::span<const int64_t> dims);

  int ndim() const noexcept { return ndim_; }
  int64_t operator[](int i) const noexcept { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const noexcept;  // 1 without dimensions
  std::span<const int64_t> dims() const noexcept { return {dims_.data(), static_cast<size_t>(ndim_)}; }
  std::string to_string() const;  // "[2, 3]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  int ndim_ = 0;
  std::array<int64_t, AA_MAX_DIMS> dims_{};
};

class Tensor;

// Memory that tensors share. The destructor returns it to where it was allocated.
class Storage {
 public:
  Storage(void* data, size_t bytes, Device device) noexcept : data_(data), bytes_(bytes), device_(device) {}
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  // Tells the allocator that `stream` also uses the memory, so that after the last tensor on it is destroyed it is not
  // reused before the work that the stream has by then is complete. Throws InvalidArgument for a stream of another
  // device. Does nothing for memory that is not stream-ordered.
  virtual void record_stream(const Stream& stream);
  // True for host memory that is page-locked and registered with the accelerator.
  virtual bool pinned() const noexcept { return false; }
  // Moves the contents to ordinary memory if the storage owns page-locked memory, see Accelerator::unpin_memory; else
  // returns false.
  virtual bool unpin() { return false; }
  // Not null for a weight in the layout of its accelerator's driver (Accelerator::pack_weight). Then data() is null,
  // and bytes() is the size of the ordinary form.
  aa_packed* packed() const noexcept { return packed_; }
  // For such a weight: is_all_of() returns whether the tensor is the whole weight. unpacked() returns the ordinary
  // form, which is made on the current stream of the device; with `keep` the storage keeps it for later such calls, and
  // the first one waits for the stream.
  virtual bool is_all_of(const Tensor& tensor) const noexcept;
  virtual Tensor unpacked(bool keep) const;

 protected:
  void move_to(void* data) noexcept { data_ = data; }
  void set_packed(aa_packed* packed) noexcept { packed_ = packed; }

 private:
  aa_packed* packed_ = nullptr;
  void* data_;
  size_t bytes_;
  Device device_;
};

class Tensor {
 public:
  // An empty handle: no memory, dtype None. Marks an absent optional tensor.
  Tensor() = default;
  // A view of `storage` from `offset` elements on; strides in elements, one for each dimension. Throws InvalidArgument
  // if the view reaches outside the storage.
  Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape, std::span<const int64_t> strides,
         int64_t offset = 0);

  // Creates an uninitialized, contiguous tensor, by default on the host. `device` may be a name (device.h). Host memory
  // is pageable, and aligned to 64 bytes. Throws OutOfMemoryError; InvalidArgument for dtype None.
  static Tensor empty(const Shape& shape, DType dtype, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype, Device device = {});
  // Copies shape.numel() elements from host memory (row-major, contiguous) to a new tensor. Waits for the work of the
  // current stream of the device, the copy included.
  static Tensor from_host(const void* data, const Shape& shape, DType dtype, Device device = {});
  // Creates a contiguous tensor on memory of the caller, without a copy; `owner` is kept until the last tensor on the
  // memory is destroyed (null: the caller guarantees the lifetime). The memory is on the host, or, if `device` is one
  // of an accelerator, must be usable there through this pointer.
  static Tensor from_blob(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device = {});

  explicit operator bool() const noexcept { return storage_ != nullptr; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  int64_t size(int dim) const;    // a negative dim counts from the end; InvalidArgument (AA_OUT_OF_RANGE) outside
  int64_t stride(int dim) const;  // in elements
  std::span<const int64_t> strides() const noexcept { return {strides_.data(), static_cast<size_t>(shape_.ndim())}; }
  int ndim() const noexcept { return shape_.ndim(); }
  int64_t numel() const noexcept { return shape_.numel(); }
  // Returns the bytes of the elements (not of the storage).
  size_t nbytes() const noexcept { return static_cast<size_t>(numel()) * dtype_size(dtype_); }
  Device device() const noexcept { return storage_ ? storage_->device() : Device{}; }
  bool is_contiguous() const noexcept;
  const std::shared_ptr<Storage>& storage() const noexcept { return storage_; }
  int64_t storage_offset() const noexcept { return offset_; }  // in elements
  // Returns the address of the first element, on the tensor's device. Null for an empty handle and a packed weight.
  void* data() const noexcept;
  // True for a weight in a driver's own layout, and for views of one. Ops accept it and copies can read it, but nothing
  // can write it.
  bool is_packed() const noexcept { return storage_ && storage_->packed() != nullptr; }
  // Returns the same view of the ordinary form (Storage::unpacked); the tensor itself if it is not packed.
  Tensor unpacked(bool keep = false) const;
  // Returns data() as a T*. Throws InvalidArgument for an empty handle, and if T does not have the dtype's size.
  template <class T>
  T* data_as() const {
    check_element_size(sizeof(T));
    return static_cast<T*>(data());
  }
  // Returns the view in the form that drivers take. An empty handle gives dtype AA_DTYPE_NONE.
  aa_tensor view_for_driver() const noexcept;

  // -- views: share memory; InvalidArgument when the shape or range does not fit --
  //    Dimensions and indices may count from the end (-1 is the last).
  Tensor reshape(const Shape& shape) const;  // copies when the strides do not allow a view
  Tensor view(const Shape& shape) const;     // never copies: throws instead
  // The same; one size may be -1 and is inferred from the others.
  Tensor reshape(std::initializer_list<int64_t> sizes) const;
  Tensor view(std::initializer_list<int64_t> sizes) const;
  // Elements begin, begin + step, ... before end. step >= 1; a range that reaches outside is rejected, not clamped.
  Tensor slice(int dim, int64_t begin, int64_t end, int64_t step = 1) const;
  Tensor select(int dim, int64_t index) const;  // removes the dimension
  Tensor transpose(int a, int b) const;
  Tensor permute(std::initializer_list<int> order) const;
  Tensor expand(const Shape& shape) const;  // dimensions of size 1, and new leading ones, repeat with stride 0
  Tensor squeeze(int dim) const;            // removes a dimension of size 1
  Tensor unsqueeze(int dim) const;

  // -- copies --
  Tensor contiguous() const;     // itself when it already is
  Tensor clone() const;          // a contiguous copy on the same device
  Tensor to(DType dtype) const;  // itself when nothing changes
  // `device` may be a name. Returns the tensor itself if nothing changes; a copy to the host blocks until the data has
  // arrived.
  Tensor to(Device device) const;
  // Copies elements, with conversion of dtypes (as in the op "copy" of abi/ops.h) and between devices; the shapes must
  // be equal. InvalidArgument if the tensors share memory, so a conversion in place is refused too; views whose strides are
  // not multiples of each other may share it unnoticed. A copy of a tensor onto itself does nothing. Blocks when pageable
  // host memory is on one side. To and from pinned memory it does not block: a source must stay unchanged, and a result
  // must not be read by the host, until the stream has done the copy. A copy that the device cannot make by itself
  // (strided or converting, without the op "copy"; between devices, without Accelerator::copy_between) goes through the
  // host and blocks.
  void copy_from(const Tensor& source) const;
  // Sets all elements to `value`, converted to the dtype as in the op "copy".
  void fill(double value) const;
  // Returns the elements in row-major order, converted, as a vector on the host. Blocks. T: float, double, int8_t,
  // uint8_t, int16_t, int32_t, int64_t; or uint16_t, which gives the bits of a float16 or bfloat16 tensor as they are.
  template <class T>
  std::vector<T> to_vector() const;
  // Returns the only element, converted. Throws InvalidArgument if there is not exactly one. Blocks.
  template <class T>
  T item() const {
    check_single_element();
    return to_vector<T>()[0];
  }

 private:
  void check_element_size(size_t size) const;
  void check_single_element() const;

  std::shared_ptr<Storage> storage_;
  DType dtype_ = DType::None;
  Shape shape_;
  std::array<int64_t, AA_MAX_DIMS> strides_{};
  int64_t offset_ = 0;
};

}  // namespace anyaccel
