// Implements residency.h: changes a device's set of resident buffers.
#include "accelerators/mps/residency.h"

namespace anyaccel::mps {

Residency::Residency(Id device) {
  static const Id descriptor_class = api.objc_getClass("MTLResidencySetDescriptor");
  if (!descriptor_class) return;
  const Pool pool;
  const Owned descriptor = Owned::given(send<Id>(descriptor_class, sel.new_object));
  Id error = nullptr;
  if (descriptor) set_ = Owned::given(send<Id>(device, sel.newResidencySet, descriptor.get(), &error));
}

void Residency::add(Id buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  send(set_.get(), sel.addAllocation, buffer);
  send(set_.get(), sel.commit);
  send(set_.get(), sel.requestResidency);
}

void Residency::remove(Id buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  send(set_.get(), sel.removeAllocation, buffer);
  send(set_.get(), sel.commit);
}

void Residency::attach_to(Id queue) const {
  if (set_) send(queue, sel.addResidencySet, set_.get());
}

}  // namespace anyaccel::mps
