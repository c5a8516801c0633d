//! Where a node's server is. A [`Place`] resolves the node's address to a [`Site`], which labels each connection to it.
//!
//! Where a server is known only here and in `redis`: a layer above sees one node.

use std::sync::Arc;

use crate::node::Fault;
use crate::node::redis::connection::Connector;

/// Where the server of a node is.
#[derive(Clone)]
pub enum Place {
    /// At the node's address, always.
    Fixed(Arc<Site>),
}

/// A server that takes the requests of a node, for a time or always.
pub struct Site {
    /// Opens connections to it.
    pub connector: Connector,
}

impl Place {
    /// The server that `connector` leads to.
    pub fn fixed(connector: Connector) -> Self {
        Self::Fixed(Arc::new(Site { connector }))
    }

    /// Returns the server that takes the requests from now on. The caller limits the time.
    pub async fn find(&self) -> Result<Arc<Site>, Fault> {
        let Self::Fixed(site) = self;
        Ok(Arc::clone(site))
    }

    /// Whether `site` takes the requests, as far as is known without a question.
    pub fn is_current(&self, site: &Arc<Site>) -> bool {
        let Self::Fixed(fixed) = self;
        Arc::ptr_eq(fixed, site)
    }
}
