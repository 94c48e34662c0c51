package config

// What every key does here. A key moves to InForce in the change that makes something read it; a test compares these lists
// with the sources.

var brokerEffects = []effectGroup{
	{Refused, noAuthorizer, `
		authorizer.class.name`},
	{Refused, noTiers, `
		remote.log.storage.system.enable`},
	{Refused, noReporters, `
		alter.config.policy.class.name client.quota.callback.class create.topic.policy.class.name
		group.streams.topology.description.plugin.class principal.builder.class`},
	{InForce, "", `
		advertised.listeners auto.create.topics.enable auto.leader.rebalance.enable broker.heartbeat.interval.ms
		broker.id broker.rack broker.session.timeout.ms compression.gzip.level compression.lz4.level compression.type
		compression.zstd.level config.providers connections.max.idle.ms controlled.shutdown.enable
		controller.listener.names controller.quorum.append.linger.ms controller.quorum.auto.join.enable
		controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
		controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
		controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
		controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
		controller.socket.timeout.ms cordoned.log.dirs default.replication.factor delete.topic.enable fetch.max.bytes
		initial.broker.registration.timeout.ms inter.broker.listener.name leader.imbalance.check.interval.seconds
		listener.security.protocol.map listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
		log.cleaner.delete.retention.ms log.cleaner.enable log.cleaner.io.buffer.load.factor
		log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
		log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy log.dir log.dir.failure.timeout.ms log.dirs
		log.flush.interval.messages log.flush.interval.ms log.flush.offset.checkpoint.interval.ms
		log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.index.interval.bytes
		log.index.size.max.bytes log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
		log.message.timestamp.type log.preallocate log.retention.bytes log.retention.check.interval.ms
		log.retention.hours log.retention.minutes log.retention.ms log.roll.hours log.roll.jitter.hours
		log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
		max.connections max.connections.per.ip max.connections.per.ip.overrides max.decompressed.message.bytes
		max.incremental.fetch.session.cache.slots max.request.partition.size.limit message.max.bytes metadata.log.dir
		metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
		metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
		metadata.max.retention.ms min.insync.replicas node.id num.partitions num.recovery.threads.per.data.dir
		num.replica.alter.log.dirs.threads
		offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes process.roles
		producer.id.expiration.check.interval.ms producer.id.expiration.ms queued.max.request.bytes
		replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms request.timeout.ms
		security.inter.broker.protocol share.coordinator.state.topic.min.isr
		share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
		share.coordinator.state.topic.segment.bytes socket.connection.setup.timeout.ms socket.listen.backlog.size
		socket.receive.buffer.bytes socket.request.max.bytes socket.send.buffer.bytes transaction.state.log.min.isr
		transaction.state.log.num.partitions transaction.state.log.replication.factor
		transaction.state.log.segment.bytes unclean.leader.election.enable unclean.leader.election.interval.ms
		unstable.api.versions.enable unstable.feature.versions.enable`},
	{NoEffect, "compaction reads and writes pieces of 256 KiB, or a batch if that is larger", `
		log.cleaner.io.buffer.size`},
	{NoEffect, noPools, `
		background.threads num.io.threads num.network.threads`},
	{NoEffect, "a connection has at most 64 requests in work, and queued.max.request.bytes bounds their memory", `
		queued.max.requests`},
	{NoEffect, noPurgatory, `
		delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests
		producer.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests`},
	{NoEffect, noTiers, `
		follower.fetch.last.tiered.offset.enable log.local.retention.bytes log.local.retention.ms
		log.remote.copy.lag.bytes log.remote.copy.lag.ms remote.fetch.max.wait.ms
		remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
		remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
		remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
		remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
		remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
		remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
		remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
		remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
		remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes
		remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path
		remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name
		remote.log.reader.max.pending.tasks remote.log.reader.threads remote.log.storage.manager.class.name
		remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix`},
	{NoEffect, noFollowers, `
		num.replica.fetchers replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
		replica.fetch.response.max.bytes replica.fetch.wait.max.ms replica.selector.class
		replica.socket.receive.buffer.bytes replica.socket.timeout.ms`},
	{NoEffect, noShares, `
		errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
		group.share.assignment.interval.ms group.share.assignor.offload.enable group.share.assignors
		group.share.delivery.count.limit group.share.dlq.manager.class.name group.share.heartbeat.interval.ms
		group.share.initialize.retry.interval.ms group.share.max.assignment.interval.ms
		group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
		group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms
		group.share.max.session.timeout.ms group.share.max.share.sessions group.share.max.size
		group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
		group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
		group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
		group.share.partition.max.record.locks group.share.persister.class.name group.share.record.lock.duration.ms
		group.share.session.timeout.ms share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
		share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
		share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
		share.coordinator.state.topic.prune.interval.ms share.coordinator.threads share.coordinator.write.timeout.ms`},
	{NoEffect, noStreams, `
		group.streams.acceptable.recovery.lag group.streams.assignment.interval.ms
		group.streams.assignor.offload.enable group.streams.assignors group.streams.heartbeat.interval.ms
		group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
		group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
		group.streams.max.standby.replicas group.streams.max.warmup.replicas group.streams.min.assignment.interval.ms
		group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
		group.streams.min.task.offset.interval.ms group.streams.num.standby.replicas group.streams.num.warmup.replicas
		group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms
		group.streams.task.offset.interval.ms`},
	{NoEffect, noGroups, `
		group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable group.consumer.assignors
		group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
		group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
		group.consumer.migration.policy group.consumer.min.assignment.interval.ms
		group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
		group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms group.coordinator.append.linger.ms
		group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
		group.coordinator.rebalance.protocols group.coordinator.threads group.initial.rebalance.delay.ms
		group.max.session.timeout.ms group.max.size group.min.session.timeout.ms offset.metadata.max.bytes
		offsets.commit.timeout.ms offsets.load.buffer.size offsets.retention.check.interval.ms
		offsets.retention.minutes offsets.topic.compression.codec`},
	{NoEffect, noTxns, `
		add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
		transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
		transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
		transaction.state.log.load.buffer.size transaction.two.phase.commit.enable transactional.id.expiration.ms`},
	{NoEffect, noQuotas, `
		alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
		controller.quota.window.num controller.quota.window.size.seconds quota.window.num quota.window.size.seconds
		replication.quota.window.num replication.quota.window.size.seconds`},
	{NoEffect, noClientPush, `
		telemetry.max.bytes`},
	{NoEffect, noReporters, `
		kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters`},
	{NoEffect, noMetrics, `
		metrics.num.samples metrics.recording.level metrics.sample.window.ms`},
	{NoEffect, noTokens, `
		delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms delegation.token.max.lifetime.ms
		delegation.token.secret.key`},
	{NoEffect, noSecurity, `
		connection.failed.authentication.delay.ms connections.max.reauth.ms sasl.client.callback.handler.class
		sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
		sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
		sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
		sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
		sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
		sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
		sasl.mechanism.inter.broker.protocol sasl.oauthbearer.allow.unverified.audience
		sasl.oauthbearer.allow.unverified.issuer sasl.oauthbearer.assertion.algorithm
		sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
		sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
		sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
		sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
		sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
		sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
		sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
		sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
		sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
		sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
		sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
		sasl.server.callback.handler.class sasl.server.max.receive.size security.providers ssl.allow.dn.changes
		ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
		ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
		ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
		ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
		ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
		ssl.truststore.type`},
	{NoEffect, "a connection that is not made in socket.connection.setup.timeout.ms is tried again with the same patience", `
		socket.connection.setup.timeout.max.ms`},
	{NoEffect, "controllers' listeners always open early, brokers' when the metadata is caught up", `
		early.start.listeners`},
	{NoEffect, internalKnobs, `
		controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
		internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
		internal.metadata.max.batch.size.in.bytes log.initial.task.delay.ms server.max.startup.time.ms`},
	{InForce, "", `highwater.compression.validation`},
}

var topicEffects = []effectGroup{
	{InForce, "", `
		cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
		delete.retention.ms file.delete.delay.ms flush.messages flush.ms index.interval.bytes internal.segment.bytes
		max.compaction.lag.ms max.decompressed.message.bytes max.message.bytes message.timestamp.after.max.ms
		message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
		min.insync.replicas preallocate retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms
		segment.ms unclean.leader.election.enable`},
	{NoEffect, noFollowers, `follower.replication.throttled.replicas leader.replication.throttled.replicas`},
	{NoEffect, noShares, `errors.deadletterqueue.group.enable`},
	{NoEffect, noTiers, `
		local.retention.bytes local.retention.ms remote.copy.lag.bytes remote.copy.lag.ms remote.log.copy.disable
		remote.log.delete.on.disable remote.storage.enable`},
}

var groupEffects = []effectGroup{
	{NoEffect, noGroups, `
		consumer.assignment.interval.ms consumer.assignor.offload.enable consumer.heartbeat.interval.ms
		consumer.session.timeout.ms`},
	{NoEffect, noShares, `
		errors.deadletterqueue.copy.record.enable errors.deadletterqueue.topic.name share.assignment.interval.ms
		share.assignor.offload.enable share.auto.offset.reset share.delivery.count.limit share.heartbeat.interval.ms
		share.isolation.level share.partition.max.record.locks share.record.lock.duration.ms
		share.renew.acknowledge.enable share.session.timeout.ms`},
	{NoEffect, noStreams, `
		streams.acceptable.recovery.lag streams.assignment.interval.ms streams.assignor.name
		streams.assignor.offload.enable streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms
		streams.num.standby.replicas streams.num.warmup.replicas streams.rack.aware.assignment.tags
		streams.session.timeout.ms streams.task.offset.interval.ms`},
}

var clientMetricsEffects = []effectGroup{{NoEffect, noClientPush, `interval.ms match metrics`}}

var userQuotaEffects = []effectGroup{
	{NoEffect, noQuotas, `consumer_byte_rate controller_mutation_rate producer_byte_rate request_percentage`},
}

var ipQuotaEffects = []effectGroup{{NoEffect, noQuotas, `connection_creation_rate`}}

var brokerQuotaEffects = []effectGroup{
	{NoEffect, noFollowers, `follower.replication.throttled.rate leader.replication.throttled.rate`},
	{InForce, "", `replica.alter.log.dirs.io.max.bytes.per.second`},
}
