# Sourced by tests/simulated/visible.sh: numbers in any order, or prefixes of UUIDs, read up to the first that names no device; one
# twice shows none. (visible_devices_test has the rules in full.)
variable=CUDA_VISIBLE_DEVICES
shows_all 0,1,2 3
shows_all 2,0 2
shows_all 1 1
shows 0,1,7 2 'reading stopped at "7", but the driver lists 3 GPUs, 0 to 2'
shows 0,x,2 1 'reading stopped at "x"'
shows 0, 1 'reading stopped at ""'
shows_none '' 'set and empty, which hides every GPU'
shows_none 7 'reading stopped at "7".*no device is visible'
shows_none x 'reading stopped at "x".*no device is visible'
shows_none -1 'reading stopped at "-1".*no device is visible'
shows_none 1,1 '"1" names a device for the second time'
shows_none GPU-nothing 'reading stopped at "GPU-nothing"'
