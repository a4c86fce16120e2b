#!/usr/bin/env python3
"""Tests log folders on real NFS and SMB: Linux's own clients and servers, in a kernel of their own (User-mode Linux).

This machine needs no module for that, and nothing of it is changed. Debian's packages: user-mode-linux, kmod,
nfs-kernel-server, nfs-common, samba, cifs-utils. scripts/test does not install them."""
import json
import os
import pathlib
import re
import shutil
import subprocess

from support import MUSTER, MusterTest, main

PROGRAMS = ("linux.uml", "modprobe", "rpcbind", "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs", "smbd", "mount.cifs")
MODULES = pathlib.Path("/usr/lib/uml/modules")
BOUND_S = 840

# The first process of that kernel. Its root is this machine's, which it cannot write; the rest is in its memory.
# NFS has the default root_squash: root's files belong to nobody. SMB shows one owner, and other inode numbers after each
# mount, as mounts with uid= and noserverino do.
INIT = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs dev /dev
mknod /dev/null c 1 3; mknod /dev/zero c 1 5; mknod /dev/urandom c 1 9; mknod /dev/random c 1 8; chmod 666 /dev/*
ln -s /proc/self/fd /dev/fd; mkdir /dev/shm /dev/pts
mount -t tmpfs x /mnt; cp @MUSTER@ /mnt/muster  # It may be below /tmp.
for dir in /run /tmp /srv /var/tmp /var/lib /var/cache /var/log; do mount -t tmpfs x $dir; done
mount -t tmpfs x /dev/shm; ip link set lo up || ifconfig lo up
mkdir -p /mnt/lib/modules /mnt/n4 /mnt/n3 /mnt/smb; ln -s @MODULES@/$(uname -r) /mnt/lib/modules/
for module in nfsd nfs nfsv3 nfsv4 cifs; do modprobe -d /mnt $module; done

mkdir -p /srv/nfs /srv/smb /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery; chmod 1777 /srv/nfs /srv/smb
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
mount -t nfsd x /proc/fs/nfsd; mount -t rpc_pipefs x /var/lib/nfs/rpc_pipefs
rpcbind -w; exportfs -o rw,fsid=0,no_subtree_check,insecure,sync 127.0.0.1:/srv/nfs
rpc.nfsd -G 10 2; rpc.mountd
mkdir -p /run/samba /var/lib/samba/private /var/cache/samba /var/log/samba
cat > /tmp/smb.conf <<X
[global]
 smb ports = 445
 map to guest = Bad User
 load printers = no
 disable spoolss = yes
[s]
 path = /srv/smb
 guest ok = yes
 read only = no
 force user = root
X
smbd -D -s /tmp/smb.conf
mount_all() {
  mount -t nfs -o vers=4.2 127.0.0.1:/ /mnt/n4 && mount -t nfs -o vers=3,nolock 127.0.0.1:/srv/nfs /mnt/n3 || return
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    mount -t cifs -o guest,uid=1234,gid=1234,vers=3.1.1,noserverino //127.0.0.1/s /mnt/smb 2>/dev/null && return; sleep 1
  done
}
mount_all; echo "MOUNTED $(cut -d' ' -f2,3 /proc/mounts | grep -cE '^/mnt/(n4 nfs4|n3 nfs|smb cifs)$')"
between() { umount -l /mnt/n4 /mnt/n3 /mnt/smb; mount -t tmpfs x /opt; mount_all; echo 2 > /proc/sys/vm/drop_caches; }
export -f between mount_all

cat > /tmp/job.sh <<'X'
n=$TORCHELASTIC_RESTART_COUNT; echo "$n" >> /tmp/attempts; echo "output of $n"
test -S "$MUSTER_WORKER_CHANNEL" || exit 9
[ -z "$REMOUNT" ] || [ $n = 2 ] || between
[ $n = 2 ] && exit $END
exit 3
X
for dir in n4 n3 smb; do
  for what in "-t3" "" "-t3 again" "again"; do
    rm -f /tmp/attempts; mkdir -p /mnt/$dir/logs /mnt/$dir/tmp
    options=${what%again}; REMOUNT=; [ "$options" = "$what" ] || REMOUNT=yes
    export REMOUNT END=0; [ "$what" = "-t3" ] && END=4
    echo "CASE $dir $what"
    (cd /tmp; TORCHELASTIC_ENABLE_FILE_TIMER=1 TMPDIR=/mnt/$dir/tmp timeout -s KILL 100 /mnt/muster --standalone \\
       --max-restarts=2 --log-dir=/mnt/$dir/logs $options --failure-report=/mnt/$dir/report.json --no-python bash /tmp/job.sh)
    echo "STATUS $?"; echo "ATTEMPTS $(tr '\\n' ' ' < /tmp/attempts)"
    echo "FILES $(cat $(find /mnt/$dir/logs -name stdout.log | sort) /dev/null | tr '\\n' ' ')"
    echo "OWNER $(stat -c %u $(find /mnt/$dir/logs -mindepth 1 -maxdepth 1 -type d) /mnt/$dir | head -1)"
    echo "REPORT $(tr -d '\\n' < /mnt/$dir/report.json 2>/dev/null)"
    rm -rf /mnt/$dir/logs /mnt/$dir/report.json
    echo "LEFT $(ls -A /mnt/$dir/tmp)"
  done
done
echo END; echo o > /proc/sysrq-trigger; sleep 9
"""


class NetworkStorage(MusterTest):
    def boot(self):
        missing = [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
        if missing or os.geteuid() != 0:
            self.skipTest(f"needs root and {', '.join(missing)} (see the text at the top of this test)")
        init = self.script("init", INIT.replace("@MODULES@", str(MODULES)).replace("@MUSTER@", str(pathlib.Path(MUSTER).resolve())))
        done = subprocess.run(["linux.uml", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "mem=1200M", "quiet",
                               f"init={init}", "con=null", "con0=fd:0,fd:1"], stdin=subprocess.DEVNULL, cwd=self.dir,
                              capture_output=True, text=True, errors="replace", timeout=BOUND_S, check=False)
        return done.stdout

    def test_log_folders(self):
        """Jobs restart there, also if the storage was mounted again meanwhile; logs and the report are whole."""
        out = self.boot()
        self.assertIn("MOUNTED 3", out)
        self.assertIn("\nEND", out)
        cases = re.split(r"^CASE ", out, flags=re.MULTILINE)[1:]
        self.assertEqual(len(cases), 12, out)
        for case in cases:
            name, text = case.split("\n", 1)
            with self.subTest(name):
                said = dict(re.findall(r"^([A-Z]{4,}) ?(.*?)\r?$", text, re.MULTILINE))
                fails = name.endswith(" -t3")
                self.assertEqual(said["STATUS"], "1" if fails else "0", text)
                self.assertEqual(said["ATTEMPTS"].split(), ["0", "1", "2"], text)
                # The folder's owner is not the user of the job: that is what this test is for.
                self.assertEqual(said["OWNER"], "1234" if name.startswith("smb") else "65534", text)
                self.assertEqual(said["FILES"].strip(), "output of 0 output of 1 output of 2" if "-t3" in name else "", text)
                self.assertEqual(json.loads(said["REPORT"] or "{}").get("ended_by"), "worker_failed" if fails else None, text)
                self.assertEqual(said["LEFT"], "", text)


if __name__ == "__main__":
    main()
