//! The store suite of `testkit::store_suite`, in a world for each store.

mod local {
    testkit::store_suite!(testkit::store_suite::Local);
}

mod memory {
    testkit::store_suite!(testkit::store_suite::Memory);
}

mod redis {
    testkit::store_suite!(testkit::store_suite::Redis);
}

mod sentinel {
    testkit::store_suite!(testkit::store_suite::Sentinel);
}

mod zookeeper {
    testkit::store_suite!(testkit::store_suite::ZooKeeper);
}

mod cluster {
    testkit::store_suite!(testkit::store_suite::Cluster);
}

mod etcd {
    testkit::store_suite!(testkit::store_suite::EtcdWorld);
}

mod mysql {
    testkit::store_suite!(testkit::store_suite::MariaDbWorld);
}

mod postgres {
    testkit::store_suite!(testkit::store_suite::PostgresWorld);
}
