module etcd_load

go 1.16

require go.etcd.io/etcd/client/v3 v3.5.9
