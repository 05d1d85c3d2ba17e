//! Engines around another engine: they look at what it is asked, or add something of their own.
//!
//! What is true of the machine is said by the engine inside, once for all of them. What becomes of users' updates is each one's own:
//! one that says nothing of single parts and of secure sums has none, so nobody's part leaves on a way that was not thought of.

use std::num::NonZeroUsize;

use device::round::Task;

use super::{
    Engine, EngineError, Hardware, PerUser, Summed, Users,
    secure::{self, SecureTask, Secured},
};

/// An engine around another one.
pub trait Around {
    /// The engine inside.
    type Inner: Engine + ?Sized;

    /// The engine inside.
    fn inner(&self) -> &Self::Inner;

    /// The engine inside, to be asked.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// As [`Engine::sum`].
    ///
    /// # Errors
    /// When it is not whole.
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError>;

    /// As [`Engine::foresees`]: what the engine inside says.
    fn foresees(&self) -> bool {
        self.inner().foresees()
    }

    /// As [`Engine::foresee`]: the engine inside is told.
    fn foresee(&mut self, numbers: &[u64]) {
        self.inner_mut().foresee(numbers);
    }

    /// As [`Engine::each`]: not by itself.
    fn each(&mut self) -> Option<&mut dyn PerUser> {
        None
    }

    /// As [`Engine::sum_securely`]: from [`Self::each`].
    ///
    /// # Errors
    /// When there is none, or the engine cannot.
    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        secure::aggregate(self.each().ok_or(EngineError::NotSecure)?, task, users, secure)
    }
}

impl<A: Around> Engine for A {
    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        Around::sum(self, task, users)
    }

    fn foresees(&self) -> bool {
        Around::foresees(self)
    }

    fn foresee(&mut self, numbers: &[u64]) {
        Around::foresee(self, numbers);
    }

    fn works_elsewhere(&self) -> bool {
        self.inner().works_elsewhere()
    }

    fn chunk(&self) -> Option<NonZeroUsize> {
        self.inner().chunk()
    }

    fn hardware(&self) -> Option<Hardware> {
        self.inner().hardware()
    }

    fn each(&mut self) -> Option<&mut dyn PerUser> {
        Around::each(self)
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        Around::sum_securely(self, task, users, secure)
    }
}

/// One that is lent.
impl<E: Engine + ?Sized> Around for &mut E {
    type Inner = E;

    fn inner(&self) -> &E {
        self
    }

    fn inner_mut(&mut self) -> &mut E {
        self
    }

    fn sum(&mut self, task: &Task<'_>, users: &Users<'_>) -> Result<Summed, EngineError> {
        (**self).sum(task, users)
    }

    fn each(&mut self) -> Option<&mut dyn PerUser> {
        (**self).each()
    }

    fn sum_securely(
        &mut self,
        task: &Task<'_>,
        users: &Users<'_>,
        secure: &SecureTask<'_>,
    ) -> Result<Secured, EngineError> {
        (**self).sum_securely(task, users, secure)
    }
}
