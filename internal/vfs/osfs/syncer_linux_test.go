package osfs

import "testing"

// TestMountBelow: a disk that is mounted below the log directory isn't synced with it.
func TestMountBelow(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime - ext4 /dev/root rw
23 22 0:21 / /proc rw - proc proc rw
30 22 8:1 / /data rw,relatime shared:1 - xfs /dev/sda1 rw
31 30 8:2 / /data/a\040b\134c rw - xfs /dev/sda2 rw
32 30 8:3 / /data2/logs/t-0 rw - xfs /dev/sda3 rw
`
	f := func(dir, want string) {
		t.Helper()
		if got := mountBelow(mounts, dir); got != want {
			t.Errorf("below %s there is %q, want %q", dir, got, want)
		}
	}
	f("/data", `/data/a b\c`)
	f("/data/a", "")
	f(`/data/a b\c`, "")
	f("/data2/logs", "/data2/logs/t-0")
	f("/data2/logs/t", "")
	f("/", "/proc")
}

func TestAtLeast58(t *testing.T) {
	for release, want := range map[string]bool{"5.8.0": true, "5.7.19": false, "4.18.0-553.el8_10.x86_64": false, "5.15.0-91-generic": true, "6.18.44-fc": true, "weird": false} {
		if got := atLeast58(release); got != want {
			t.Errorf("%s: %v", release, got)
		}
	}
}
