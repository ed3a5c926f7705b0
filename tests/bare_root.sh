#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Does a fresh machine get from a clone to a verdict? Makes a Debian 12 that holds nothing but its base system, puts a
# clean clone of the last commit into it and runs there what README.md promises. Takes the package mirror, and the way
# to it (proxy, host names, certificates), from this machine. Needs root.
#
#   tests/bare_root.sh [COMMAND...]     each COMMAND runs in the clone; without any: "./dev demo" "./dev test"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cannot() {
  printf 'error: %s\n' "$1" >&2
  exit 3
}

# The mount namespace takes every mount with it when it ends, however it ends: nothing below the root is left mounted.
if [[ ${1:-} != --inside ]]; then
  [[ $(id -u) == 0 ]] || cannot 'a bare root needs root'
  unshare --mount true 2>/dev/null || cannot 'this machine allows no mount namespaces'
  root=$(mktemp -d "${TMPDIR:-/tmp}/tidemark-bare-root.XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
  unshare --mount --propagation private "$0" --inside "$root" "$@"
  exit
fi

root=$2
shift 2
[[ $# -gt 0 ]] || set -- './dev demo' './dev test'

# shellcheck disable=SC2016  # apt-get fills these in
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
  sed -n 's/ bookworm$//p' | head -n 1)
[[ -n $mirror ]] || cannot 'the apt sources of this machine name no mirror of Debian 12 (bookworm)'

if ! debootstrap --variant=minbase bookworm "$root" "$mirror" >/dev/null 2>&1; then
  cannot "debootstrap failed: $(tail -n 3 "$root/debootstrap/debootstrap.log")"
fi
printf 'deb %s bookworm main\n' "$mirror" >"$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$root/etc/apt/apt.conf.d/99host" || true
cp -L /etc/hosts /etc/resolv.conf "$root/etc/"
if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
mount -t proc proc "$root/proc" || mount --rbind /proc "$root/proc" || cannot 'no /proc can be mounted in the bare root'
mount -t sysfs -o ro sysfs "$root/sys" || mount --rbind /sys "$root/sys" || cannot 'no /sys can be mounted in the bare root'
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666 || cannot 'no terminals can be made in the bare root'
ln -sf pts/ptmx "$root/dev/ptmx"
git -c safe.directory='*' clone --quiet --no-hardlinks . "$root/tidemark"

for command in "$@"; do
  printf '== bare root: %s\n' "$command"
  started=$SECONDS
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    sh -c "cd /tidemark && $command" </dev/null
  printf '== bare root: %s: fine after %d s\n' "$command" $((SECONDS - started))
done
