# Sourced by tests/simulated/faults.sh: a driver without devices, and functions that it lacks.
SIM_DEVICES=0 run
check_error "no device" 'level_zero: .*none lists a GPU' $?
for symbol in zeKernelCreate zeMemAllocDevice zeCommandListCreateImmediate zeEventPoolCreate zeModuleCreate; do
  expect_error "hide:$symbol" "$symbol"
done
