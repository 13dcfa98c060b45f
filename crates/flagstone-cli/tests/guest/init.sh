#!/bin/busybox sh
# The first process of the guest: does what the test asks about, says what came of it, and switches the machine off.
# Each answer begins with a line `== name`.
export PATH=/bin XDG_CACHE_HOME=/cache HOME=/ NO_COLOR=1
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t devtmpfs dev /dev && mount -t cgroup2 groups /sys/fs/cgroup
mkdir -p /cache && chmod 1777 /tmp
library=$(flagstone run --quiet -- guest library) && library=${library%%:*} && chmod -R a+rX /cache

group=/sys/fs/cgroup/app
echo +memory >/sys/fs/cgroup/cgroup.subtree_control && mkdir $group
in_group() { sh -c 'echo 0 >/sys/fs/cgroup/app/cgroup.procs && exec env "$@"' sh "$@"; }

for pressure in 0 1; do
    echo "== high, pressure $pressure"
    echo max >$group/memory.high
    in_group LD_PRELOAD="$library" FLAGSTONE_PRESSURE=$pressure FLAGSTONE_RETAIN_BYTES_MIN=1G guest $group/memory.high 30M
    grep high $group/memory.events
    grep some $group/memory.pressure
done

echo max >$group/memory.high
in_group LD_PRELOAD="$library" FLAGSTONE_PRESSURE=1 guest as 1000 guest idle >/tmp/up &
until grep -q up /tmp/up; do sleep 0.1; done
process=$(pidof guest)
echo "== files"
ls -l /proc/$process/fd | grep -o '/sys/.*'
for scope in 0 1 2 3; do
    echo $scope >/proc/sys/kernel/yama/ptrace_scope
    for user in 0 1000; do
        for command in "stat $process" "ps" "top --once $process" "check $process"; do
            echo "== scope $scope, user $user, ${command%% *}"
            guest as $user flagstone $command 2>&1
            echo "exit $?"
        done
    done
done
# A child of one's own may be looked at whatever the scope is.
echo "== scope 3, own child"
guest as 1000 flagstone run -- guest library >/dev/null
echo "exit $?"
echo "== end"
poweroff -f
